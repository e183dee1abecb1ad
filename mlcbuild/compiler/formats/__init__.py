"""Formats of other engines, in which a package's quantized weights are written as they are."""
