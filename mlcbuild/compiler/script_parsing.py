"""Parsing of TVMScript without its slowest part.

TVM's parser asks `inspect` for the module of every frame it meets, and each answer scans all of `sys.modules`:
tens of thousands of times for the kernels of one KV cache. Inside `quick_script_parsing` an answer is
remembered by the file that an object comes from.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from types import ModuleType


@contextlib.contextmanager
def quick_script_parsing() -> Iterator[None]:
    """Remember `inspect.getmodule`'s answers by file until the end of the block. Not for several threads."""
    original = inspect.getmodule
    answers: dict[str, ModuleType | None] = {}

    def remembered(item: object, _filename: str | None = None) -> ModuleType | None:
        if isinstance(item, ModuleType):
            return item
        try:
            path = _filename or inspect.getfile(item)  # type: ignore[arg-type]
        except TypeError:
            return original(item, _filename)
        if path not in answers:
            answers[path] = original(item, _filename)
        return answers[path]

    inspect.getmodule = remembered  # type: ignore[assignment]
    try:
        yield
    finally:
        inspect.getmodule = original
