"""What a row is, and the sets of stages that rows name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.end_to_end.what_runs.place import Place

IMPORT = {"ImportConfig", "ImportWeights"}
FAMILY = {"ImportConfig", "ResolveModel", "Export"}  # the stages that are given families
SIZES = {"ConfigureModel", "GenConfig", "Lower", "Link"}
READ = {"ResolveModel", "ConfigureModel", "Export"}  # whatever a model is read differently by
WEIGHTS = {"ImportWeights", "Quantize", "IndexWeights"}
PHASES = {"Phase0", "Phase1", "Phase2", "Phase3"}
KERNELS = {"ScheduleKernel", "CompileKernel"}
CODE = {*PHASES, "Partition", *KERNELS, "Lower", "Link"}
DEVICE = {"CompileDevice"}
Edit = Callable[[Place], None]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A change, and what runs after it."""

    name: str
    edit: Edit
    runs: frozenset[str] = field(default_factory=frozenset)


def row(name: str, edit: Edit, *runs: str) -> Row:
    return Row(name=name, edit=edit, runs=frozenset(runs))
