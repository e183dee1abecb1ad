"""`mlcbuild doctor`: which checks run, and how their findings are printed."""
