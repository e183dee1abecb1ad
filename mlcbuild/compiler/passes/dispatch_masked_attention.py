"""DispatchMaskedAttention: put a backend's kernel in place of the calls that stand for attention of padded texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tvm
from tvm import relax, tirx

from mlcbuild.compiler.models.layers.masked_attention import PLACEHOLDER
from mlcbuild.compiler.passes.rewriting import finish, rewrite_dataflow

NAME = "masked_attention"
MakeKernel = Callable[[int, int, str], tirx.PrimFunc]
"""Of heads, their size and a dtype: the kernel (qkv (tokens, 3 heads, size), mask (texts, length), result (tokens,
heads, size)) that `layers.masked_attention` describes."""


def dispatch_masked_attention(module: tvm.IRModule, *, make: MakeKernel) -> tvm.IRModule:
    """The module with the calls of `mlcbuild.masked_attention` replaced. A module without stays as it is."""
    builder = relax.BlockBuilder(module)
    found = False

    def replaced(binding: relax.VarBinding) -> Iterator[relax.VarBinding]:
        nonlocal found
        call = binding.value
        if not _stands_for_attention(call):
            yield binding
            return
        found = True
        arguments = list(call.args[1].fields)
        _, heads, size = arguments[0].ty.shape
        kernel = builder.add_func(make(int(heads) // 3, int(size), str(arguments[0].ty.dtype)), NAME)
        yield relax.VarBinding(binding.var, relax.call_tir(kernel, arguments, out_ty=binding.var.ty))

    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            before, found = found, False
            made = rewrite_dataflow(function, replaced)
            if found:
                builder.update_func(variable, made)
            found = found or before
    return finish(builder.get()) if found else module


def _stands_for_attention(value: relax.Expr) -> bool:
    if not isinstance(value, relax.Call) or not value.args:
        return False
    callee = value.args[0]
    return isinstance(callee, relax.ExternFunc) and callee.global_symbol == PLACEHOLDER
