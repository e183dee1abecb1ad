"""`mlcbuild test`: which targets are tests, their runs, and what came of them."""
