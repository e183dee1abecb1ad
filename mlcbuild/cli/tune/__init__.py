"""`mlcbuild tune`: measures kernels with other shapes, and keeps records of what came of it."""
