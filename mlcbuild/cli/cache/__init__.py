"""`mlcbuild cache`: the disk cache's statistics, eviction and verification, and transfers to and from the remote."""
