"""ScheduleKernel: a canonical kernel → the scheduled kernel and its signature.

Reads `kernel` (the canonical JSON of `passes.canonical_kernel`); writes `scheduled` (JSON of a module of one function
that bears the kernel's content name) and `signature` (what Lower has to know of the kernel besides its arguments).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from mlcbuild.compiler import ir, optimization
from mlcbuild.compiler import signature as signatures
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.kernels.gpu.workspace import lift_global_buffers
from mlcbuild.compiler.kernels.rules import OPTIMIZED, UNOPTIMIZED, apply_rules
from mlcbuild.compiler.passes.canonical_kernel import ROOT, kernel_name, load_kernel
from mlcbuild.errors import StageError


def run(*, kernel: Path, scheduled: Path, signature: Path, target: dict[str, Any], opt: str) -> None:
    """Schedules the kernel for `target`; `opt` O0 does no more than a target asks for.

    `signature` is as `compiler.signature` has it. Raises StageError for an unknown `opt`, a target that no rules exist
    for, or a file that is no kernel.
    """
    optimization.check(opt)
    data = kernel.read_bytes()
    name = kernel_name(data)
    module = _load(kernel, data)
    parsed = targets.parse(target)
    kind = parsed.kind.name
    with parsed:
        func = apply_rules(module[ROOT], parsed, (UNOPTIMIZED if opt == "O0" else OPTIMIZED)[kind])
    if kind == "llvm":
        made = signatures.Signature(name=name)
    else:
        func, buffers = lift_global_buffers(func)
        made = signatures.Signature.of(func, name=name, workspace=len(buffers))
    ir.save_module(_named(module, func, name), scheduled)
    signature.write_text(made.to_json(), encoding="utf-8")


def _load(kernel: Path, data: bytes) -> tvm.IRModule:
    try:
        module = load_kernel(data)
    except Exception as error:
        raise StageError(f"{kernel.name} is not a kernel: {str(error).splitlines()[0]}") from error
    if not isinstance(module, tvm.IRModule) or ROOT not in module.global_var_map_:
        raise StageError(f"{kernel.name} is not a kernel: it has no function {ROOT!r}")
    return module


def _named(module: tvm.IRModule, func: tirx.PrimFunc, name: str) -> tvm.IRModule:
    """The module with `func` as its only public function."""
    functions = {variable: function for variable, function in module.functions_items() if variable.name_hint != ROOT}
    functions[tvm.ir.GlobalVar(name)] = func.with_attr("global_symbol", name).with_attr("tirx.is_scheduled", True)
    return tvm.IRModule(functions)
