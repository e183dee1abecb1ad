"""Hand kernels the memory that their schedules need: more results of a call, which nobody reads."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
import tvm_ffi
from tvm import relax, tirx

from mlcbuild.compiler.passes.rewriting import rewrite_dataflow
from mlcbuild.errors import InternalError


def add_workspaces(module: tvm.IRModule, stubs: Mapping[str, tirx.PrimFunc]) -> tvm.IRModule:
    """Exchange the stubs of kernels, by name, for `stubs`, which have workspaces behind the parameters of the old ones,
    and have every call allocate these. Raises InternalError where such a kernel is not simply called."""
    if not stubs:
        return module
    functions: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}
    for variable, function in module.functions_items():
        name = str(variable.name_hint)
        if isinstance(function, relax.Function):
            functions[variable] = rewrite_dataflow(function, lambda binding: _with_workspace(binding, module, stubs))
        elif name in stubs:
            functions[variable] = stubs[name].with_attrs(dict(function.attrs))
        else:
            functions[variable] = function
    return relax.transform.Normalize()(tvm.IRModule(functions, attrs=module.attrs))


def _with_workspace(
    binding: relax.VarBinding, module: tvm.IRModule, stubs: Mapping[str, tirx.PrimFunc]
) -> list[relax.VarBinding]:
    call = binding.value
    if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.Op):
        return [binding]
    used = [argument for argument in call.args if isinstance(argument, tvm.ir.GlobalVar)]
    named = [variable for variable in used if str(variable.name_hint) in stubs]
    if not named:
        return [binding]
    if call.op.name != "relax.call_tir" or len(call.args) != 2:
        raise InternalError(f"{call.op.name} hands over {named[0].name_hint}, which needs memory of its caller")
    kernel = named[0]
    stub = stubs[str(kernel.name_hint)]
    given = len(module[kernel].params)
    results = list(call.ty_args[0].fields) if isinstance(call.ty_args[0], relax.TupleType) else [call.ty_args[0]]
    sizes = _sizes(stub, [*(argument.ty for argument in call.args[1].fields), *results])
    workspace = [
        relax.TensorType([_substituted(size, sizes) for size in buffer.shape], str(buffer.dtype))
        for buffer in list(stub.params)[given:]
    ]
    widened = relax.call_tir(kernel, call.args[1], out_ty=[*results, *workspace])
    everything = relax.DataflowVar(f"{binding.var.name}_and_workspace", relax.TupleType([*results, *workspace]))
    if isinstance(call.ty_args[0], relax.TupleType):
        value = relax.Tuple([relax.TupleGetItem(everything, place) for place in range(len(results))])
    else:
        value = relax.TupleGetItem(everything, 0)
    return [relax.VarBinding(everything, widened), relax.VarBinding(binding.var, value)]


def _sizes(stub: tirx.PrimFunc, types: list[relax.TensorType]) -> dict[tirx.Var, tirx.Expr]:
    """The caller's size for each symbolic size of the kernel, which has a parameter of its own type for each of
    `types`."""
    sizes: dict[tirx.Var, tirx.Expr] = {}
    for parameter, passed in zip(stub.params, types, strict=False):
        for formal, actual in zip(getattr(parameter, "shape", ()), passed.shape, strict=True):
            if isinstance(formal, tirx.Var):
                sizes[formal] = actual
    return sizes


def _substituted(size: tirx.Expr, sizes: Mapping[tirx.Var, tirx.Expr]) -> tirx.Expr:
    return tvm_ffi.structural_map(size, (tirx.Var, lambda variable: sizes.get(variable, variable)))
