"""`mlcbuild bench`: how fast a package or library is, and where its time goes."""
