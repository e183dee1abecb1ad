"""How many bytes a model's weights may take, as people write it. Nothing here imports NumPy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mlcbuild.errors import StageError

ADVICE = 'write bits a weight ("4.5 bits"), bytes ("75 MB", "72MiB"), or a scheme whose bytes it may take ("q4f16_1")'
_BITS = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?bits")
_BYTES = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([KMGT]?)(i?)B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One of the three: `bits` a weight, `bytes`, or as many as all parameters take in a `scheme`. All count what is
    stored for every parameter of the model, scales too."""

    bits: float = 0.0
    bytes: int = 0
    scheme: str = ""

    def of(self, elements: int, uniform: Mapping[str, int]) -> int:
        """Bytes, for a model of so many weights, by the bytes that it takes in each scheme."""
        if self.scheme:
            return uniform[self.scheme]
        return self.bytes or int(elements * self.bits / 8)


def parse_budget(text: str, schemes: tuple[str, ...]) -> Budget:
    """Raises StageError for a text that is no budget, and for a scheme that is none of those to choose from."""
    if found := _BITS.fullmatch(text):
        budget = Budget(bits=float(found[1]))
    elif found := _BYTES.fullmatch(text):
        power = "KMGT".index(found[2]) + 1 if found[2] else 0
        budget = Budget(bytes=int(float(found[1]) * (1024 if found[3] else 1000) ** power))
    elif text in schemes:
        return Budget(scheme=text)
    else:
        raise StageError(f'"{text}" is no budget', advice=(ADVICE, f"schemes to choose from: {', '.join(schemes)}"))
    if not budget.bits and not budget.bytes:
        raise StageError(f'a budget of "{text}" has room for nothing', advice=(ADVICE,))
    return budget
