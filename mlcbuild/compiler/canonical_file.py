"""Kernels as files: one as Partition wrote it, and the same one scheduled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler.passes.canonical_kernel import ROOT, kernel_name, load_kernel
from mlcbuild.errors import StageError


@dataclass(frozen=True, kw_only=True)
class CanonicalFile:
    """A kernel with the functions that it calls, if any, and the name of its content."""

    name: str
    module: tvm.IRModule

    @property
    def function(self) -> tirx.PrimFunc:
        return self.module[ROOT]


def read(path: Path) -> CanonicalFile:
    """Raises StageError for a file that is no kernel."""
    data = path.read_bytes()
    try:
        module = load_kernel(data)
    except Exception as error:
        raise StageError(f"{path.name} is not a kernel: {str(error).splitlines()[0]}") from error
    if not isinstance(module, tvm.IRModule) or ROOT not in module.global_var_map_:
        raise StageError(f"{path.name} is not a kernel: it has no function {ROOT!r}")
    return CanonicalFile(name=kernel_name(data), module=module)


def write_scheduled(kernel: CanonicalFile, func: tirx.PrimFunc, path: Path) -> None:
    """Write the module with `func`, under the kernel's name, as its only public function."""
    functions = {
        variable: function for variable, function in kernel.module.functions_items() if variable.name_hint != ROOT
    }
    named = func.with_attr("global_symbol", kernel.name).with_attr("tirx.is_scheduled", True)
    ir.save_module(tvm.IRModule({**functions, tvm.ir.GlobalVar(kernel.name): named}), path)
