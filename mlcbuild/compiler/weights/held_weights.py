"""What a quantized checkpoint holds, as far as its `config.json` says: whether a scheme may keep it is told before any
weight is read. Nothing here imports NumPy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldWeights:
    """`words` say it to people. Integers have `integer_bits`, floats `float_bits`; both are 0 for what is restored
    while it is read, such as NF4. `group` columns share a scale, 0 for a whole row, or where tensors alone show how
    many; and a `block` (rows, columns) of floats does."""

    words: str
    integer_bits: int = 0
    zero_points: bool = False
    float_bits: int = 0
    group: int = 0
    block: tuple[int, int] | None = None

    @property
    def signed_bits(self) -> int:
        """The bits of an integer's difference from its zero point, whatever that is; 0 where there are no integers."""
        return self.integer_bits + self.zero_points if self.integer_bits else 0


def words_of_integers(bits: int, *, group: int = 0, zero_points: bool = False) -> str:
    groups = f" in groups of {group}" if group else ""
    return f"integers of {bits} bits{groups}{' with zero points' if zero_points else ''}"
