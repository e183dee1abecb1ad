"""Kernels that leave a choice, for tests of what is measured of them."""

from __future__ import annotations

from mlcbuild.cli.tune.plan import TunableKernel
from mlcbuild.rules.backend import PlatformInfo
from mlcbuild.rules.tuning_actions import TunedLibrary
from mlcbuild.runtime.measuring.candidate_list import Argument, CandidateList
from tests.engine.steps import action

LIBRARY = TunedLibrary(
    owner="//:one", platform=PlatformInfo(kind="cpu", target={"kind": "llvm"}), partition=action("//:one Partition")
)
SHAPES = tuple({"chains": chains, "rows": rows} for chains in (1, 2, 4) for rows in (1, 2, 4, 8))


def kernel(number: int, rows: int, *, calls: int = 1, sizes: tuple[int, ...] = ()) -> TunableKernel:
    """A matrix of halves with so many rows of 64, times one vector or `n`."""
    arguments = (
        Argument(shape=(rows, 64), dtype="float16"),
        Argument(shape=("n" if sizes else 1, 64), dtype="float16"),
    )
    listed = CandidateList(
        kernel=f"kernel_{number:032x}",
        rule="cpu.gemv:2",
        shapes=SHAPES,
        arguments=arguments,
        sizes=tuple({"n": size} for size in sizes) or ({},),
    )
    return TunableKernel(library=LIBRARY, text=str(number), listed=listed, calls=calls)
