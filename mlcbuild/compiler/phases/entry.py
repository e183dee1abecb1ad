"""The passes of a phase by name and in order, without their code: naming one needs no tvm."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class PassOrigin(enum.Enum):
    """Whose pass an entry is, by that one's name."""

    MLC_LLM = "MLC-LLM"  # its pipeline runs a pass of this name, its own or one of TVM's
    TVM = "TVM"  # TVM has it, and MLC-LLM's pipeline does not run it
    MLCBUILD = "mlcbuild"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One pass of the pipeline.

    The common implementation is in `compiler/passes/phase<N>.py`. With `backend`, a backend may have one of its own in
    `compiler/backends/<kind>/phase<N>.py`, which then runs in its place; where neither has one, the module stays as it
    is. `not_needed` says why no pass runs here, for an entry that has no implementation at all.
    """

    name: str
    origin: PassOrigin
    backend: bool = False
    not_needed: str = ""

    def __post_init__(self) -> None:
        if self.backend and self.not_needed:
            raise ValueError(f"{self.name} is both for backends to implement and not needed")
