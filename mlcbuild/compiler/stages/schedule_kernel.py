"""ScheduleKernel: a canonical kernel → the scheduled kernel and its signature.

Reads `kernel` (the canonical JSON of `passes.canonical_kernel`); writes `scheduled` (JSON of a module of one function
that bears the kernel's content name) and `signature` (what Lower has to know of the kernel besides its arguments).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.kernels.rules import CPU_RULES, apply_rules
from mlcbuild.compiler.passes.canonical_kernel import ROOT, kernel_name, load_kernel
from mlcbuild.errors import StageError

SIGNATURE_VERSION = 1
_OPTS = ("O0", "O1", "O2", "O3")


def run(*, kernel: Path, scheduled: Path, signature: Path, target: dict[str, Any], opt: str) -> None:
    """Schedules the kernel for `target`; `opt` O0 leaves it as it is.

    `signature` is JSON: `version`; `name`; `workspace`, the byte sizes of global buffers that the caller must add to
    the arguments; `index_bits`, the width of the integers that index buffers. Raises StageError for an unknown `opt`,
    a target that no rules exist for, or a file that is no kernel.
    """
    if opt not in _OPTS:
        raise StageError(f"unknown optimization level {opt!r}", advice=(f"known: {', '.join(_OPTS)}",))
    data = kernel.read_bytes()
    name = kernel_name(data)
    module = _load(kernel, data)
    parsed = targets.parse(target)
    func = module[ROOT]
    if opt != "O0":
        with parsed:
            func = apply_rules(func, parsed, CPU_RULES)
    ir.save_module(_named(module, func, name), scheduled)
    content = {"version": SIGNATURE_VERSION, "name": name, "workspace": [], "index_bits": 64}
    signature.write_text(json.dumps(content, sort_keys=True) + "\n")


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
