"""`mlcbuild show`: actions of a target, as they stand now or as a recorded build has them."""
