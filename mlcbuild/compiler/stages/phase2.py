"""Phase2: operators become kernels, and neighbours fuse.

Reads `module`, writes `module_out`; `phases.phase2` lists its passes, `passes.phase2` has their code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlcbuild.compiler import ir
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.passes.phase2 import PASSES
from mlcbuild.compiler.phases.phase2 import PHASE2
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext, apply


def run(*, module: Path, module_out: Path, target: dict[str, Any], backend: Passes | None = None) -> None:
    """`backend` has the passes that run in place of the common ones.

    Raises StageError for a file that holds no module, and for an unknown target.
    """
    context = PhaseContext(target=targets.parse(target))
    made = apply(ir.load_module(module), PHASE2, context, common=PASSES, backend=backend)
    ir.save_module(made, module_out)
