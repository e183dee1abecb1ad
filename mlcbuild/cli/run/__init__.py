"""`mlcbuild run`: runs a built program, or generates text with a built model package."""
