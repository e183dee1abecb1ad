"""`mlcbuild release` and `mlcbuild verify`."""
