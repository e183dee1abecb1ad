"""Put private functions in line where they are called.

TVM's own InlinePrivateFunctions keeps the callee's symbolic sizes, which later passes then know nothing of; here they
become the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import tvm
from tvm import relax, tirx


def inline_private_functions(module: tvm.IRModule) -> tvm.IRModule:
    """Inline every call of a private Relax function, and drop these functions. They may not call each other."""
    private = {
        variable: function
        for variable, function in module.functions_items()
        if isinstance(function, relax.Function) and "global_symbol" not in function.attrs
    }
    if not private:
        return module
    functions = {}
    for variable, function in module.functions_items():
        if variable in private:
            continue
        functions[variable] = _inlined(function, private) if isinstance(function, relax.Function) else function
    inlined = relax.transform.CanonicalizeBindings()(
        relax.transform.Normalize()(tvm.IRModule(functions, attrs=module.attrs))
    )
    # The results of a layer are a tuple that only the call was in need of.
    return tvm.IRModule(
        {
            variable: relax.analysis.remove_all_unused(function) if isinstance(function, relax.Function) else function
            for variable, function in inlined.functions_items()
        },
        attrs=module.attrs,
    )


def _inlined(function: relax.Function, private: dict[tvm.ir.GlobalVar, relax.Function]) -> relax.Function:
    blocks = [
        type(block)([new for old in block.bindings for new in _bindings(old, private)])
        for block in function.body.blocks
    ]
    return relax.Function(
        function.params,
        relax.SeqExpr(blocks, function.body.body),
        function.ret_ty,
        function.is_pure,
        function.attrs,
    )


def _bindings(binding: relax.VarBinding, private: dict[tvm.ir.GlobalVar, relax.Function]) -> Iterator[relax.VarBinding]:
    call = binding.value
    callee = private.get(call.op) if isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.GlobalVar) else None
    if callee is None:
        yield binding
        return
    fresh = relax.utils.copy_with_new_vars(callee)
    sized = fresh.bind_symbolic_vars(_sizes(fresh.params, call.args))
    body = sized.bind_params(dict(zip(sized.params, call.args, strict=True))).body
    for block in body.blocks:
        yield from block.bindings
    yield relax.VarBinding(binding.var, body.body)


def _sizes(parameters: Iterable[relax.Var], arguments: Iterable[relax.Expr]) -> dict[tirx.Var, tirx.Expr]:
    """The caller's size for each symbolic size in the types of parameters."""
    sizes: dict[tirx.Var, tirx.Expr] = {}
    for parameter, argument in zip(parameters, arguments, strict=True):
        if isinstance(parameter.ty, relax.TensorType):
            for formal, actual in zip(parameter.ty.shape, argument.ty.shape, strict=True):
                if isinstance(formal, tirx.Var):
                    sizes[formal] = actual
    return sizes
