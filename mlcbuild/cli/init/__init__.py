"""`mlcbuild init` and `mlcbuild import`: the `BUILD.toml` of a new workspace."""
