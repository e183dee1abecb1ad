"""Running what was built: load a package's library and weights, and generate text."""
