"""Python's garbage collector, and what it costs who creates many values and frees few."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """A load, an analysis and a walk create some hundred thousand values, which live until the command ends. The
    garbage collector would traverse them for nothing, inside and after it. So it leaves them out for good: garbage
    among them is freed with the process.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.freeze()
            gc.enable()
