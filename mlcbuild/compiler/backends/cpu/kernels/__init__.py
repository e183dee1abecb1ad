"""Schedule rules for CPUs: one a file, each returning None for a kernel that it does not fit."""
