"""The types of ggml whose blocks packages can hold as they are.

Form: `block_q8_0`, `block_q4_K`, `block_q5_K` and `block_q6_K` of ggml-common.h. NumPy is not imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockType:
    """A type by ggml's name: so many `elements`, neighbours in a row, are `size` bytes."""

    name: str
    elements: int
    size: int

    def row_bytes(self, columns: int) -> int:
        """The bytes of a row of so many columns, which are whole blocks."""
        return columns // self.elements * self.size


_ALL = (
    BlockType(name="Q4_0", elements=32, size=18),
    BlockType(name="Q8_0", elements=32, size=34),
    BlockType(name="Q4_K", elements=256, size=144),
    BlockType(name="Q5_K", elements=256, size=176),
    BlockType(name="Q6_K", elements=256, size=210),
)
BLOCK_TYPES: Mapping[str, BlockType] = {each.name: each for each in _ALL}
KEPT_AS_BLOCKS = ("Q4_K", "Q5_K", "Q6_K")
"""Those of them that are no integers with one scale a group, which `weights.integers` has."""
