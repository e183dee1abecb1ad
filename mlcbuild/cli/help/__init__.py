"""`mlcbuild help`: sections of the documentation's pages, as text for a terminal."""
