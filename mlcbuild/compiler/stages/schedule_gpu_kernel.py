"""ScheduleKernel for NVIDIA GPUs: a canonical kernel → the scheduled kernel and its signature.

Reads and writes what ScheduleKernel for CPUs does. Memory that a kernel wants on the device for itself becomes further
arguments, of which its signature tells.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlcbuild.compiler import canonical_file
from mlcbuild.compiler import signature as signatures
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.backends.cuda.kernels.rules import GPU_RULES, UNOPTIMIZED_GPU_RULES
from mlcbuild.compiler.backends.cuda.kernels.workspace import lift_global_buffers
from mlcbuild.compiler.kernels.rules import apply_rules


def run(*, kernel: Path, scheduled: Path, signature: Path, target: dict[str, Any], optimized: bool) -> None:
    """Schedules the kernel for `target`; without `optimized`, no more is done than a GPU asks for.

    `signature` is as `compiler.signature` has it. Raises StageError for a target of another kind, or a file
    that is no kernel.
    """
    unscheduled = canonical_file.read(kernel)
    parsed = targets.parse_kind(target, "cuda")
    with parsed:
        func = apply_rules(unscheduled.function, parsed, GPU_RULES if optimized else UNOPTIMIZED_GPU_RULES)
    func, buffers = lift_global_buffers(func)
    made = signatures.Signature.of(func, name=unscheduled.name, workspace=len(buffers))
    canonical_file.write_scheduled(unscheduled, func, scheduled)
    signature.write_text(made.to_json(), encoding="utf-8")
