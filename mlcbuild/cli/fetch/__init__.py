"""`mlcbuild fetch --update`: looks at what is served now, and writes its digest into `BUILD.toml`."""
