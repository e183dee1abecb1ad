"""Phase2: operators become kernels, and neighbours fuse.

Reads `module`, writes `module_out`; `phases.phase2` lists its passes, `passes.phase2` has their code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.compiler import ir
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.passes.phase2 import PASSES
from mlcbuild.compiler.phases.phase2 import PHASE2
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
) -> None:
    """`backend` has the passes that run in place of the common ones; `passes` are a workspace's, which run at `places`
    (`phases.placed.added_passes`).

    Raises StageError for a file that holds no module, for an unknown target, and for a pass of a workspace that goes
    wrong.
    """
    context = PhaseContext(target=targets.parse(target))
    added = added_passes(passes, places)
    made = apply(ir.load_module(module), PHASE2, context, common=PASSES, backend=backend, added=added)
    ir.save_module(made, module_out)
