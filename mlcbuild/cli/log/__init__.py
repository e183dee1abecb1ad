"""`mlcbuild log`: the records of the last builds, and what is shown of them."""
