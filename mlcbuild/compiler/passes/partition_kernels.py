"""Take the kernels out of a module: what stays are Relax functions that call stubs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from mlcbuild.compiler.passes.canonical_kernel import (
    ROOT,
    CanonicalKernel,
    canonicalize,
    load_kernel,
)


@dataclass(frozen=True, kw_only=True)
class PartitionedModule:
    """`graph` holds a stub for each of `kernels`, which are sorted by name and distinct.

    `names` maps the names that kernels had in the module to those of their content.
    """

    graph: tvm.IRModule
    kernels: tuple[CanonicalKernel, ...]
    names: Mapping[str, str]


def partition_kernels(module: tvm.IRModule) -> PartitionedModule:
    """Replace each kernel by a stub PrimFunc of the same parameters, named for the kernel's content."""
    kernels: dict[str, CanonicalKernel] = {}
    stubs: dict[str, tvm.ir.GlobalVar] = {}
    functions: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}
    renamed: dict[str, tvm.ir.GlobalVar] = {}
    called = _called_by_graph(module)
    builder = relax.BlockBuilder()
    for variable, function in module.functions_items():
        if not isinstance(function, tirx.PrimFunc) or variable.name_hint not in called:
            continue
        kernel = canonicalize(function, module=module)
        if kernel.name not in kernels:
            kernels[kernel.name] = kernel
            stub = _stub(kernel)
            stubs[kernel.name] = builder.add_func(stub, kernel.name)
            functions[stubs[kernel.name]] = stub
        renamed[str(variable.name_hint)] = stubs[kernel.name]
    replace = _Renamer(renamed)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            functions[variable] = replace.visit_expr(function)
    ordered = sorted(kernels)
    return PartitionedModule(
        graph=tvm.IRModule(functions, attrs=module.attrs),
        kernels=tuple(kernels[name] for name in ordered),
        names={name: str(stub.name_hint) for name, stub in renamed.items()},
    )


def _called_by_graph(module: tvm.IRModule) -> set[str]:
    names: set[str] = set()
    for _, function in module.functions_items():
        if isinstance(function, relax.Function):
            names.update(str(v.name_hint) for v in relax.analysis.all_global_vars(function))
    return names


def _stub(kernel: CanonicalKernel) -> tirx.PrimFunc:
    """The kernel's signature; its canonical names keep the graph free of those that fusion happened to give."""
    function = load_kernel(kernel.data)[ROOT]
    attributes = tvm.ir.make_node("ir.DictAttrs", global_symbol=kernel.name, s_tir=True)
    return tirx.PrimFunc(function.params, tirx.Evaluate(0), function.ret_type, attributes)


@mutator
class _Renamer(PyExprMutator):  # type: ignore[misc]
    """Puts one global variable in place of another, wherever it is used."""

    def __init__(self, renamed: Mapping[str, tvm.ir.GlobalVar]) -> None:
        super().__init__()
        self.renamed = renamed

    def visit_global_var_(self, variable: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
        return self.renamed.get(str(variable.name_hint), variable)
