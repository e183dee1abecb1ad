"""PrefetchWeights: a product asks, as it ends, for the matrices of those after it (`kernels.l2_prefetch`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from mlcbuild.compiler.backends.cuda import dependent_launch
from mlcbuild.compiler.backends.cuda.kernels import l2_prefetch, operands
from mlcbuild.compiler.backends.cuda.kernels.l2_prefetch import Following
from mlcbuild.compiler.kernels.matmul_pattern import match_matrix_product
from mlcbuild.compiler.passes.rewriting import callee, finish, rewrite_dataflow

# That are asked for at a time. On an H200 Llama-3-8B and TinyLlama took 3 to 6 % less with 8 MB than with none, and
# more again with 16 and 32: a kernel has not ended before its requests have been sent.
MOST_BYTES = 8 << 20


def prefetch_weights(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Rewrite the functions in which products of one vector follow each other, for architectures that have the
    instruction (from sm_90 on, as those that launch kernels early)."""
    if not dependent_launch.begins_early(str(target.attrs["arch"])):
        return module
    kernels = _Kernels(module)
    builder = relax.BlockBuilder(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            caller = _Caller(builder, kernels, function)
            if len(caller.products) > 1:
                builder.update_func(variable, rewrite_dataflow(function, caller.rewrite))
    return finish(builder.get())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """A call of a kernel that is such a product, and what it reads as the words of the matrix."""

    result: relax.Var
    matrix: relax.Expr


class _Kernels:
    """Which parameter of a kernel has the words of the matrix; None in a kernel that is no such product."""

    def __init__(self, module: tvm.IRModule) -> None:
        self.module = module
        self._places: dict[str, int | None] = {}

    def matrix_place(self, kernel: tvm.ir.GlobalVar) -> int | None:
        name = str(kernel.name_hint)
        if name not in self._places:
            self._places[name] = _matrix_place(self.module[kernel])
        return self._places[name]


def _matrix_place(kernel: tirx.PrimFunc) -> int | None:
    product = match_matrix_product(kernel, gated=True)
    # Kernels for any number of vectors have a way for one.
    if (
        product is None
        or (product.rows != 1 and isinstance(product.rows, int))
        or not operands.fits_one_vector(product)
    ):
        return None
    matrix: Any = product.matrix
    return next((place for place, given in enumerate(product.func.params) if given.same_as(matrix.words)), None)


class _Caller:
    """The products of one function, and the kernels that ask for what follows them."""

    def __init__(self, builder: relax.BlockBuilder, kernels: _Kernels, function: relax.Function) -> None:
        self.products: list[_Product] = []
        self._builder = builder
        self._kernels = kernels
        self._known = set(function.params)
        self._made: dict[tuple[str, tuple[Following, ...]], tvm.ir.GlobalVar] = {}
        for block in function.body.blocks:
            for binding in block.bindings if isinstance(block, relax.DataflowBlock) else []:
                kernel = callee(binding.value)
                place = None if kernel is None else kernels.matrix_place(kernel)
                if place is not None and isinstance(binding.value.ty, relax.TensorType):
                    self.products.append(_Product(result=binding.var, matrix=binding.value.args[1].fields[place]))

    def rewrite(self, binding: relax.VarBinding) -> Iterator[relax.VarBinding]:
        following = self._following(binding.var)
        if following:
            kernel, arguments = binding.value.args[0], list(binding.value.args[1].fields)
            asking = self._asking(kernel, tuple(following.values()))
            yield relax.VarBinding(
                binding.var, relax.call_tir(asking, [*arguments, *following], out_ty=binding.value.ty)
            )
        else:
            yield binding
        self._known.add(binding.var)

    def _following(self, result: relax.Var) -> dict[relax.Expr, Following]:
        """What the products after that with this result read as matrices, as far as it is known where it is made."""
        found: dict[relax.Expr, Following] = {}
        left = MOST_BYTES
        for product in self._after(result):
            shape = tuple(int(size) for size in product.matrix.ty.shape)
            dtype = str(product.matrix.ty.dtype)
            size = min(left, math.prod(shape) * int(tvm.DataType(dtype).itemsize))
            size -= size % l2_prefetch.LINE
            if product.matrix not in self._known or product.matrix in found or size < l2_prefetch.LINE:
                break
            found[product.matrix] = Following(shape, dtype, size)
            left -= size
        return found

    def _after(self, result: relax.Var) -> Sequence[_Product]:
        places = [place for place, product in enumerate(self.products) if product.result.same_as(result)]
        return self.products[places[0] + 1 :] if places else ()

    def _asking(self, kernel: tvm.ir.GlobalVar, following: tuple[Following, ...]) -> tvm.ir.GlobalVar:
        key = str(kernel.name_hint), following
        if key not in self._made:
            longer = l2_prefetch.with_following(self._kernels.module[kernel], following)
            self._made[key] = self._builder.add_func(longer, f"{key[0]}_prefetching")
        return self._made[key]
