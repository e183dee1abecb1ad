"""FuseAddRMSNorm: a sum and its root mean square norm come from one kernel for GPUs, and so does a norm alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tvm
import tvm_ffi
from tvm import relax, tirx

from mlcbuild.compiler.backends.cuda.kernels import norm
from mlcbuild.compiler.passes.rewriting import finish, is_operator, rewrite_dataflow

FUSED = "add_rms_norm"
ALONE = "rms_norm"
_DIMENSIONS = 3


def fuse_add_rms_norm(module: tvm.IRModule) -> tvm.IRModule:
    """Exchange the norms of rows (a, b, hidden), together with the addition of what they norm where there is one and
    the weight is known by then."""
    builder = relax.BlockBuilder(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            fuser = _Fuser(builder, function)
            if fuser.norms:
                builder.update_func(variable, rewrite_dataflow(function, fuser.rewrite))
    return finish(builder.get())


class _Fuser:
    """The norms of one function: by what is normed, the first of each, and those that their sum has brought along."""

    def __init__(self, builder: relax.BlockBuilder, function: relax.Function) -> None:
        self.builder = builder
        self.norms: dict[relax.Var, relax.VarBinding] = {}
        self.made: dict[relax.Var, relax.Expr] = {}
        self.known = set(function.params)
        for block in function.body.blocks:
            for binding in block.bindings if isinstance(block, relax.DataflowBlock) else []:
                if _fits(binding.value):
                    self.norms.setdefault(binding.value.args[0], binding)

    def rewrite(self, binding: relax.VarBinding) -> Iterator[relax.VarBinding]:
        yield from self._rewritten(binding)
        self.known.add(binding.var)

    def _rewritten(self, binding: relax.VarBinding) -> Iterator[relax.VarBinding]:
        value = binding.value
        normed = self.norms.get(binding.var)
        if binding.var in self.made:
            yield relax.VarBinding(binding.var, self.made[binding.var])
        elif normed is not None and self._adds(value, normed.value):
            call = relax.call_tir(
                self._kernel(norm.add_rms_norm, FUSED, normed.value),
                (*value.args, normed.value.args[1]),
                out_ty=[binding.var.ty, normed.var.ty],
            )
            both = relax.DataflowVar(f"{normed.var.name}_and_sum", relax.TupleType([binding.var.ty, normed.var.ty]))
            self.made[normed.var] = relax.TupleGetItem(both, 1)
            yield relax.VarBinding(both, call)
            yield relax.VarBinding(binding.var, relax.TupleGetItem(both, 0))
        elif any(binding.same_as(one) for one in self.norms.values()):
            kernel = self._kernel(norm.rms_norm, ALONE, value)
            yield relax.VarBinding(binding.var, relax.call_tir(kernel, list(value.args), out_ty=binding.var.ty))
        else:
            yield binding

    def _adds(self, value: relax.Expr, normed: relax.Call) -> bool:
        return (
            is_operator(value, "relax.add")
            and normed.args[1] in self.known
            and all(tvm_ffi.structural_equal(argument.ty, normed.ty) for argument in value.args)
        )

    def _kernel(
        self, make: Callable[[int, str, float], tirx.PrimFunc], name: str, normed: relax.Call
    ) -> tvm.ir.GlobalVar:
        width = int(normed.ty.shape[-1])
        return self.builder.add_func(make(width, str(normed.ty.dtype), float(normed.attrs.epsilon)), name)


def _fits(value: relax.Expr) -> bool:
    if not is_operator(value, "relax.nn.rms_norm"):
        return False
    rows, weight = value.args
    return (
        isinstance(rows, relax.Var)
        and isinstance(weight, relax.Var)
        and rows.ty.ndim == _DIMENSIONS
        and [int(axis) % _DIMENSIONS for axis in value.attrs.axes] == [_DIMENSIONS - 1]
        and isinstance(rows.ty.shape[-1], tirx.IntImm)
        and str(rows.ty.dtype) in norm.DTYPES
        and str(weight.ty.dtype) == str(rows.ty.dtype)
    )
