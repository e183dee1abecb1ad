"""Phase3: dequantization fuses into whatever reads the matrix.

Reads `module`, writes `module_out`; `phases.phase3` lists its passes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlcbuild.compiler import ir
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.phases.phase3 import PHASE3
from mlcbuild.compiler.phases.pipeline import PhaseContext, apply


def run(*, module: Path, module_out: Path, target: dict[str, Any]) -> None:
    """Raises StageError for a file that holds no module, and for an unknown target."""
    context = PhaseContext(target=targets.parse(target))
    ir.save_module(apply(ir.load_module(module), PHASE3, context), module_out)
