"""Measurements of kernels: records, what is chosen by them, and where they are kept."""
