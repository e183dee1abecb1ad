"""The GPU architectures that device code is made for, by the names of CUDA 13.0's compilers.

`sm_90` is any device of compute capability 9.0 or a later one of the same major number; `sm_90a` is 9.0 alone, with
instructions that nothing later has; `sm_100f` is the family of 10.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mlcbuild.suggestions import known_values

_PLAIN = ("75", "80", "86", "87", "88", "89", "90", "100", "103", "110", "120", "121")
_OWN_INSTRUCTIONS = ("90a", "100a", "100f", "103a", "103f", "110a", "110f", "120a", "120f", "121a", "121f")
ARCHITECTURES: tuple[str, ...] = tuple(f"sm_{name}" for name in (*_PLAIN, *_OWN_INSTRUCTIONS))
MULTIPROCESSORS = 132  # of an H100 or H200, for which work is shared out
_PARTS = re.compile(r"sm_(\d+)([af]?)")


def problem(name: str) -> tuple[str, tuple[str, ...]] | None:
    """What is wrong with an architecture's name, and advice; None where it is one."""
    if name in ARCHITECTURES:
        return None
    return f'unknown GPU architecture "{name}"', (known_values(name, in_order(ARCHITECTURES)),)


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct architectures, the lowest first; of one number the plain name first.

    Raises ValueError for a name that is none.
    """
    return tuple(sorted(set(names), key=_rank))


def scheduled_for(ordered: Sequence[str]) -> str:
    """The architecture whose instructions the kernels of a library may have: the lowest of `ordered`, whose own ones no
    other has."""
    return ordered[0] if len(ordered) == 1 else f"sm_{number(ordered[0])}"


def number(name: str) -> int:
    """90 for sm_90 and sm_90a. Raises ValueError for a name that is none."""
    return _rank(name)[0]


def has_mma_m16n8k16(name: str) -> bool:
    """Whether tensor cores multiply tiles of 16 × 8 × 16 halves: since compute capability 8.0 (PTX ISA, `mma`)."""
    return number(name) >= 80


def _rank(name: str) -> tuple[int, str]:
    parts = _PARTS.fullmatch(name)
    if parts is None:
        raise ValueError(f"{name!r} is no GPU architecture")
    return int(parts[1]), parts[2]
