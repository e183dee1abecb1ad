"""FuseTransposeMatmul: x @ permute_dims(w) becomes one kernel, `NT_matmul`, that reads w along its rows.

Products of narrow floats are summed in float32 and rounded once, at the end: the sum of thousands of float16 products
in float16 would lose most of its digits.
"""

from __future__ import annotations

from collections.abc import Iterator

import tvm
from tvm import relax, te, tirx

from mlcbuild.compiler.passes.rewriting import finish, is_operator, rewrite_dataflow

NAME = "NT_matmul"
_SUMMED_IN_FLOAT32 = ("float16", "bfloat16")


def fuse_transpose_matmul(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite every product of a tensor (…, k) with a transposed matrix (n, k)."""
    builder = relax.BlockBuilder(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            fuser = _Fuser(builder)
            rewritten = rewrite_dataflow(function, fuser.rewrite)
            if fuser.kernels:
                builder.update_func(variable, rewritten)
    return finish(builder.get())


class _Fuser:
    """The state of one function: its transposed matrices, and the kernels by shape and dtype of operands."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.builder = builder
        self.transposed: dict[relax.Var, relax.Expr] = {}
        self.kernels: dict[tuple[str, ...], tvm.ir.GlobalVar] = {}

    def rewrite(self, binding: relax.VarBinding) -> Iterator[relax.VarBinding]:
        value = binding.value
        if is_operator(value, "relax.permute_dims") and _is_plain_transpose(value):
            self.transposed[binding.var] = value.args[0]
        if not is_operator(value, "relax.matmul") or value.args[1] not in self.transposed:
            yield binding
            return
        data, matrix = value.args[0], self.transposed[value.args[1]]
        dtype = str(binding.var.ty.dtype)
        summed = "float32" if dtype in _SUMMED_IN_FLOAT32 else dtype
        product = relax.call_tir(
            self._kernel(data, matrix, summed),
            (data, matrix),
            out_ty=relax.TensorType(binding.var.ty.shape, summed),
        )
        if summed == dtype:
            yield relax.VarBinding(binding.var, product)
            return
        wide = relax.DataflowVar(f"{binding.var.name}_{summed}", relax.TensorType(binding.var.ty.shape, summed))
        yield relax.VarBinding(wide, product)
        yield relax.VarBinding(binding.var, relax.op.astype(wide, dtype))

    def _kernel(self, data: relax.Expr, matrix: relax.Expr, dtype: str) -> tvm.ir.GlobalVar:
        key = (*(str(part) for value in (data, matrix) for part in (value.ty.shape, value.ty.dtype)), dtype)
        if key not in self.kernels:
            self.kernels[key] = self.builder.add_func(_nt_matmul(data.ty, matrix.ty, dtype), NAME)
        return self.kernels[key]


def _is_plain_transpose(call: relax.Call) -> bool:
    axes = call.attrs.axes
    return call.args[0].ty.ndim == 2 and (axes is None or [int(axis) for axis in axes] == [1, 0])


def _nt_matmul(data: relax.TensorType, matrix: relax.TensorType, dtype: str) -> tirx.PrimFunc:
    """y[…, n] = sum over k of x[…, k] w[n, k], operands cast to `dtype` first."""
    x = te.placeholder(list(data.shape), str(data.dtype), name="x")
    w = te.placeholder(list(matrix.shape), str(matrix.dtype), name="w")
    k = te.reduce_axis((0, w.shape[1]), name="k")

    def element(*index: tirx.Var) -> tirx.Expr:
        return te.sum(x(*index[:-1], k).astype(dtype) * w(index[-1], k).astype(dtype), axis=k)

    y = te.compute((*x.shape[:-1], w.shape[0]), element, name=NAME)
    return te.create_prim_func([x, w, y]).without_attr("global_symbol").with_attr("tirx.noalias", True)
