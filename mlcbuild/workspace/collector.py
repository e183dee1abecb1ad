"""Python's garbage collector, and what it costs who creates many values and frees few."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """A load, an analysis and a walk create some hundred thousand values and free few. The garbage collector would
    traverse them for nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
