"""Commands that only look: `mlcbuild query`, `info` and `version`."""
