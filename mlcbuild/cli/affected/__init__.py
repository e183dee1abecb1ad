"""`mlcbuild affected`: the targets that differ from those of a revision."""
