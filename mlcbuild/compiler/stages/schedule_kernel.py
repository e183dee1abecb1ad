"""ScheduleKernel: a canonical kernel → the scheduled kernel and its signature.

Reads `kernel` (the canonical JSON of `passes.canonical_kernel`); writes `scheduled` (JSON of a module of one function
that bears the kernel's content name) and `signature` (what Lower has to know of the kernel besides its arguments).
The parameter `tuned` names the shape that measurements have chosen for the kernel, and the digest of the record that
says so, which is part of the key only. Without it the kernel has its default shape.
Memory that a kernel wants of its caller becomes further arguments, of which its signature tells, as it does where
the kernel comes from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlcbuild.compiler import canonical_file
from mlcbuild.compiler import signature as signatures
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.kernels.scheduling import ChosenShape, Scheduling, apply_first_rule


def run(
    *,
    kernel: Path,
    scheduled: Path,
    signature: Path,
    target: dict[str, Any],
    optimized: bool,
    backend: Scheduling,
    tuned: dict[str, Any] | None = None,
) -> None:
    """Schedules the kernel for `target` by the rules of `backend`.

    `tuned` is `{rule, shape, record}`: the name of a rule, the values of its shape, a digest.

    `signature` is as `compiler.signature` has it. Raises StageError for what is no target, or a file that is no kernel.
    """
    unscheduled = canonical_file.read(kernel)
    parsed = targets.parse(target)
    chosen = ChosenShape(rule=tuned["rule"], shape=tuned["shape"]) if tuned else None
    with parsed:
        rules = backend.rules if optimized else backend.unoptimized_rules
        func, rule = apply_first_rule(unscheduled.function, parsed, rules, chosen)
    source = backend.source(func, rule)
    func, buffers = backend.lift_workspace(func)
    made = signatures.Signature.of(func, name=unscheduled.name, source=source, workspace=len(buffers))
    canonical_file.write_scheduled(unscheduled, func, scheduled)
    signature.write_text(made.to_json(), encoding="utf-8")
