"""Phase1: operators of the graph become fewer.

Reads `module`, writes `module_out`; `phases.phase1` lists its passes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlcbuild.compiler import ir
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.phases.phase1 import PHASE1
from mlcbuild.compiler.phases.pipeline import PhaseContext, apply


def run(*, module: Path, module_out: Path, target: dict[str, Any]) -> None:
    """Raises StageError for a file that holds no module, and for an unknown target."""
    context = PhaseContext(target=targets.parse(target))
    ir.save_module(apply(ir.load_module(module), PHASE1, context), module_out)
