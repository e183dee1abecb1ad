"""Classes that schemes name as `package.module:name`, as actions give them: each once, in any order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

Class = TypeVar("Class")


def by_name(classes: Iterable[Class]) -> Mapping[str, Class]:
    """The classes by the names that schemes have for them."""
    return {f"{each.__module__}:{getattr(each, '__qualname__', '')}": each for each in classes}
