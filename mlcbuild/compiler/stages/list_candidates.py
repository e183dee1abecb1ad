"""ListCandidates: which shapes a kernel can have, for `mlcbuild tune`; no build has it.

Reads `kernel` (the canonical JSON of `passes.canonical_kernel`); writes `candidates`
(`runtime.measuring.candidate_list`): the name of the kernel's rule, its shapes, the tensors that it takes, and the
sizes at which it is measured. A kernel
that leaves nothing to choose, or that takes more than tensors whose sizes are numbers or names, has no shapes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from mlcbuild.compiler import canonical_file
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.kernels.measured_inputs import MeasuredInputs
from mlcbuild.compiler.kernels.scheduling import Scheduling, shaped_rule_of
from mlcbuild.compiler.kernels.shapes import ShapedRule
from mlcbuild.runtime.measuring.candidate_list import Argument, CandidateList


def run(*, kernel: Path, candidates: Path, target: dict[str, Any], backend: Scheduling) -> None:
    """Raises StageError for what is no target, or a file that is no kernel."""
    unscheduled = canonical_file.read(kernel)
    parsed = targets.parse(target)
    found = CandidateList(kernel=unscheduled.name)
    with parsed:
        rule = shaped_rule_of(unscheduled.function, parsed, backend.rules)
        shapes = rule.candidates(unscheduled.function, parsed) if rule is not None else ()
        inputs = _inputs(unscheduled.function, rule, parsed) if rule is not None and len(shapes) > 1 else None
    if rule is not None and inputs is not None:
        found = CandidateList(
            kernel=unscheduled.name, rule=rule.word, shapes=shapes, arguments=inputs.arguments, sizes=inputs.sizes
        )
    candidates.write_text(found.to_json(), encoding="utf-8")


def _inputs(func: tirx.PrimFunc, rule: ShapedRule[Any, Any], target: tvm.target.Target) -> MeasuredInputs | None:
    """What the kernel is measured with: what its rule says, or random tensors; None where those cannot be made."""
    inputs = rule.inputs_of(func, target)
    if inputs is not None:
        return inputs
    arguments = _arguments(func)
    if arguments is None:
        return None
    names = sorted({size for each in arguments for size in each.shape if isinstance(size, str)})
    sizes = tuple(dict.fromkeys(names, size) for size in rule.sizes) if names else ({},)
    return MeasuredInputs(arguments=arguments, sizes=sizes)


def _arguments(func: tirx.PrimFunc) -> tuple[Argument, ...] | None:
    """None where a parameter is no tensor, or a size is computed of others."""
    found = []
    for parameter in func.params:
        shape = getattr(parameter, "shape", None)
        if shape is None:
            return None
        sizes: list[int | str] = []
        for size in shape:
            if isinstance(size, int | tirx.IntImm):
                sizes.append(int(size))
            elif isinstance(size, tvm.ir.Var):
                sizes.append(str(size.name))
            else:
                return None
        found.append(Argument(shape=tuple(sizes), dtype=str(parameter.dtype)))
    return tuple(found)
