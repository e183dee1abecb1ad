"""`mlcbuild compare`: one model by several compilers, measured side by side."""
