"""Sizes of tensors that a module knows when it is built."""

from __future__ import annotations

from tvm import tirx


def is_one(size: object) -> bool:
    """Whether a size is 1 whatever the call is."""
    return isinstance(size, int | tirx.IntImm) and int(size) == 1
