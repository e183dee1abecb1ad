"""ScheduleKernel for CPUs: a canonical kernel → the scheduled kernel and its signature.

Reads `kernel` (the canonical JSON of `passes.canonical_kernel`); writes `scheduled` (JSON of a module of one function
that bears the kernel's content name) and `signature` (what Lower has to know of the kernel besides its arguments).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlcbuild.compiler import canonical_file, optimization
from mlcbuild.compiler import signature as signatures
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.kernels.cpu.rules import CPU_RULES, UNOPTIMIZED_CPU_RULES
from mlcbuild.compiler.kernels.rules import apply_rules


def run(*, kernel: Path, scheduled: Path, signature: Path, target: dict[str, Any], opt: str) -> None:
    """Schedules the kernel for `target`; `opt` O0 leaves it as it is.

    `signature` is as `compiler.signature` has it. Raises StageError for an unknown `opt`, a target of another
    kind, or a file that is no kernel.
    """
    optimization.check(opt)
    unscheduled = canonical_file.read(kernel)
    parsed = targets.parse_kind(target, "llvm")
    with parsed:
        func = apply_rules(unscheduled.function, parsed, UNOPTIMIZED_CPU_RULES if opt == "O0" else CPU_RULES)
    canonical_file.write_scheduled(unscheduled, func, scheduled)
    signature.write_text(signatures.Signature(name=unscheduled.name).to_json(), encoding="utf-8")
