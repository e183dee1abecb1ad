"""Measures kernels: needs libraries and TVM's runtime, no compiler."""
