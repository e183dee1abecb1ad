"""Phase1: operators of the graph become fewer.

Reads `module`, writes `module_out`; `phases.phase1` lists its passes, `passes.phase1` has their code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.compiler import ir
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.passes.phase1 import PASSES
from mlcbuild.compiler.phases.phase1 import PHASE1
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext, Run, apply
from mlcbuild.compiler.phases.placed import added_passes


def run(
    *,
    module: Path,
    module_out: Path,
    target: dict[str, Any],
    backend: Passes | None = None,
    passes: Sequence[Run] = (),
    places: Sequence[Mapping[str, str]] = (),
    triton_kernels: Sequence[Mapping[str, Any]] = (),
) -> None:
    """`backend` has the passes that run in place of the common ones; `passes` are a workspace's, which run at `places`
    (`phases.placed.added_passes`), and `triton_kernels` its kernels, which the backend puts into their places.

    Raises StageError for a file that holds no module, for an unknown target, and for a pass of a workspace that goes
    wrong.
    """
    context = PhaseContext(target=targets.parse(target), triton_kernels=triton_kernels)
    added = added_passes(passes, places)
    made = apply(ir.load_module(module), PHASE1, context, common=PASSES, backend=backend, added=added)
    ir.save_module(made, module_out)
