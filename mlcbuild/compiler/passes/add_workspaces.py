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
    builder = relax.BlockBuilder()
    known = {str(variable.name_hint): variable for variable in module.get_global_vars()}
    # A variable bears the type of its function, which is another one now.
    replaced = {
        name: builder.add_func(stub.with_attrs(dict(module[known[name]].attrs)), name) for name, stub in stubs.items()
    }
    widener = _Widener(module, stubs, replaced)
    functions: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}
    for variable, function in module.functions_items():
        name = str(variable.name_hint)
        if isinstance(function, relax.Function):
            functions[variable] = rewrite_dataflow(function, widener.rewrite)
        elif name not in stubs:
            functions[variable] = function
    functions |= {replaced[name]: builder.get()[replaced[name]] for name in stubs}
    return relax.transform.Normalize()(tvm.IRModule(functions, attrs=module.attrs))


class _Widener:
    """Has calls allocate what kernels need."""

    def __init__(
        self,
        module: tvm.IRModule,
        stubs: Mapping[str, tirx.PrimFunc],
        replaced: Mapping[str, tvm.ir.GlobalVar],
    ) -> None:
        self.module = module
        self.stubs = stubs
        self.replaced = replaced

    def rewrite(self, binding: relax.VarBinding) -> list[relax.VarBinding]:
        call = binding.value
        if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.Op):
            return [binding]
        used = [argument for argument in call.args if isinstance(argument, tvm.ir.GlobalVar)]
        named = [variable for variable in used if str(variable.name_hint) in self.stubs]
        if not named:
            return [binding]
        if call.op.name != "relax.call_tir" or len(call.args) != 2:
            raise InternalError(f"{call.op.name} hands over {named[0].name_hint}, which needs memory of its caller")
        return self._widened(binding, named[0])

    def _widened(self, binding: relax.VarBinding, kernel: tvm.ir.GlobalVar) -> list[relax.VarBinding]:
        call = binding.value
        stub = self.stubs[str(kernel.name_hint)]
        several = isinstance(call.ty_args[0], relax.TupleType)
        results = list(call.ty_args[0].fields) if several else [call.ty_args[0]]
        sizes = _sizes(stub, [*(argument.ty for argument in call.args[1].fields), *results])
        types = [
            *results,
            *(
                relax.TensorType([_substituted(size, sizes) for size in buffer.shape], str(buffer.dtype))
                for buffer in list(stub.params)[len(self.module[kernel].params) :]
            ),
        ]
        made = relax.DataflowVar(f"{binding.var.name}_and_workspace", relax.TupleType(types))
        value: relax.Expr = relax.TupleGetItem(made, 0)
        if several:
            value = relax.Tuple([relax.TupleGetItem(made, place) for place in range(len(results))])
        widened = relax.call_tir(self.replaced[str(kernel.name_hint)], call.args[1], out_ty=types)
        return [relax.VarBinding(made, widened), relax.VarBinding(binding.var, value)]


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
