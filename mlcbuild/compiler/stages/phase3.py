"""Phase3: dequantization fuses into whatever reads the matrix.

Reads `module`, writes `module_out`; `phases.phase3` lists its passes, `passes.phase3` has their code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlcbuild.compiler import ir
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.passes.phase3 import PASSES
from mlcbuild.compiler.phases.phase3 import PHASE3
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext, apply


def run(*, module: Path, module_out: Path, target: dict[str, Any], backend: Passes | None = None) -> None:
    """`backend` has the passes that run in place of the common ones.

    Raises StageError for a file that holds no module, and for an unknown target.
    """
    context = PhaseContext(target=targets.parse(target))
    made = apply(ir.load_module(module), PHASE3, context, common=PASSES, backend=backend)
    ir.save_module(made, module_out)
