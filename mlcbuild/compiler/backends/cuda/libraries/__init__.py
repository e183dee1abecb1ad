"""Libraries of others that a platform may take kernels of: a module each, with what calls it, in C."""
