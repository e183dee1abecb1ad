"""ScheduleKernel for CPUs: a canonical kernel → the scheduled kernel and its signature.

Reads `kernel` (the canonical JSON of `passes.canonical_kernel`); writes `scheduled` (JSON of a module of one function
that bears the kernel's content name) and `signature` (what Lower has to know of the kernel besides its arguments).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlcbuild.compiler import canonical_file
from mlcbuild.compiler import signature as signatures
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.backends.cpu.kernels.rules import CPU_RULES, UNOPTIMIZED_CPU_RULES
from mlcbuild.compiler.kernels.rules import apply_rules


def run(*, kernel: Path, scheduled: Path, signature: Path, target: dict[str, Any], optimized: bool) -> None:
    """Schedules the kernel for `target`; without `optimized` it stays as it is.

    `signature` is as `compiler.signature` has it. Raises StageError for a target of another kind, or a file
    that is no kernel.
    """
    unscheduled = canonical_file.read(kernel)
    parsed = targets.parse_kind(target, "llvm")
    with parsed:
        func = apply_rules(unscheduled.function, parsed, CPU_RULES if optimized else UNOPTIMIZED_CPU_RULES)
    canonical_file.write_scheduled(unscheduled, func, scheduled)
    signature.write_text(signatures.Signature(name=unscheduled.name).to_json(), encoding="utf-8")
