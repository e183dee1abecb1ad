"""The workspace that a command works in: opening it, and `mlcbuild clean`."""
