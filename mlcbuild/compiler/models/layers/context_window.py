"""The context window of a library, for kernels that depend on it: Export hands them a number that stands for it, and
Lower, which is told the library's sizes, writes the size in its place.
"""

from __future__ import annotations

from tvm import relax

UNKNOWN = -2  # no size; -1 is one, of a library without an end of the context


def unknown_context_window() -> relax.Expr:
    """An int64 for a binding, which stands for the size in tokens; -1 where there is none."""
    return relax.prim_value(UNKNOWN)
