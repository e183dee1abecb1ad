"""Phase1: operators of the graph become fewer.

Reads `module`, writes `module_out`; `passes.phases.PHASE1` lists its passes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlcbuild.compiler import ir, optimization
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.passes import phases


def run(*, module: Path, module_out: Path, target: dict[str, Any], opt: str) -> None:
    """Raises StageError for a file that holds no module, and for an unknown target or `opt`."""
    optimization.check(opt)
    context = phases.PhaseContext(target=targets.parse(target))
    ir.save_module(phases.apply(ir.load_module(module), phases.PHASE1, context), module_out)
