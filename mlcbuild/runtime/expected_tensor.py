"""What a library's metadata says of a weight that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTensor:
    """A weight by MLC-LLM's name, its shape in elements, and its dtype as numpy writes it."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @staticmethod
    def of(item: Mapping[str, Any]) -> ExpectedTensor:
        """From an element of the metadata's `params`."""
        return ExpectedTensor(
            name=str(item["name"]), shape=tuple(int(extent) for extent in item["shape"]), dtype=str(item["dtype"])
        )
