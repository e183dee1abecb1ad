"""`mlcbuild matrix`."""
