"""How kernels multiply matrices of signed bytes by signed bytes: exactly, in int32.

A token's row x becomes integers xq = round(x / s), from -127 to 127, with its own s = max|x| / 127, or the static one
of the matrix; and

    y = (Σ xq · q) · (s · scale)          the sum in int32, the rest in float32, rounded to y's type

Products with experts, whose matrices kernels choose token by token, are of restored matrices and of rounded rows, xq ·
s in x's type.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.quantization.int8.scheme import LARGEST, Int8Scheme
from mlcbuild.compiler.quantization.reader import Reader, restored_by, restoring_kernel, shape_of
from mlcbuild.compiler.quantization.scheme import Weight

Expression = Any  # TVM's expressions carry no types that a checker can read.
_LEAST = 1e-10  # taken for the largest of a token's numbers that are smaller


class Int8Reader(Reader):
    """The `Reader` of signed bytes."""

    scheme: Int8Scheme

    def restored(self, weight: Weight, stored: Sequence[nn.Tensor]) -> nn.Tensor:
        if not self.scheme.covers(weight.role):
            return stored[0]
        kernel = restoring(self.scheme.model_dtype, *weight.shape)
        return restored_by(kernel, weight, stored[:2], self.scheme.model_dtype)

    def activations(self, weight: Weight, stored: Sequence[nn.Tensor], x: nn.Tensor) -> nn.Tensor:
        if not self.scheme.covers(weight.role):
            return x
        static = list(stored[2:])
        scales = nn.op.tensor_expr_op(activation_scales, "activation_scales", [x, *static])
        return nn.op.tensor_expr_op(rounded_activations, "round_activations", [x, scales])

    def product(
        self, weight: Weight, stored: Sequence[nn.Tensor], x: nn.Tensor, *, out_dtype: str | None = None
    ) -> nn.Tensor:
        if not self.scheme.static_scales(weight):
            return super().product(weight, stored, x, out_dtype=out_dtype)
        integers, scales, static = stored
        of_tokens = nn.op.tensor_expr_op(activation_scales, "activation_scales", [x, static])
        rows = nn.op.tensor_expr_op(quantized_activations, "quantize_activations", [x, of_tokens])
        compute = functools.partial(integer_product, dtype=out_dtype or x.dtype)
        return nn.op.tensor_expr_op(compute, "int8_product", [rows, of_tokens, integers, scales])


@functools.cache
def restoring(dtype: str, *shape: int) -> tirx.PrimFunc:
    """The kernel from bytes and scales to a matrix (out, in), or to those of experts. One for all layers of that
    shape."""
    *rows, _ = shape
    integers = te.placeholder(shape_of(*shape), "int8", "integers")
    scales = te.placeholder(shape_of(*rows, 1), "float32", "scales")

    def element(*place: tirx.Var) -> Expression:
        scale = scales[(*place[:-1], tirx.const(0, "int64"))]
        return (integers[place].astype("float32") * scale).astype(dtype)

    return restoring_kernel((integers, scales), te.compute(shape_of(*shape), element, name="dequantize"))


def activation_scales(x: te.Tensor, *static: te.Tensor) -> te.Tensor:
    """x (…, in) → (…, 1) float32: the static scale (1,), if there is one above 0, and else that of each row."""
    *tokens, columns = x.shape
    along = te.reduce_axis((0, columns), "place")
    largest = te.compute(
        (*tokens, tirx.IntImm("int64", 1)),
        lambda *place: te.max(tirx.abs(x[(*place[:-1], along)].astype("float32")), axis=along),
        name="largest",
    )

    def scale(*place: tirx.Var) -> Expression:
        own = tirx.max(largest[place], tirx.const(_LEAST, "float32")) / tirx.const(LARGEST, "float32")
        for given in static:
            one = given[tirx.const(0, "int64")]
            own = tirx.Select(one > tirx.const(0, "float32"), one, own)
        return own

    return te.compute(largest.shape, scale, name="scales")


def quantized_activations(x: te.Tensor, scales: te.Tensor) -> te.Tensor:
    """x (…, in) and scales (…, 1) → (…, in) int8."""
    return te.compute(x.shape, lambda *place: _whole(x, scales, place).astype("int8"), name="quantized")


def rounded_activations(x: te.Tensor, scales: te.Tensor) -> te.Tensor:
    """x (…, in) with each number rounded to a whole number of its scale, in x's type."""

    def element(*place: tirx.Var) -> Expression:
        return (_whole(x, scales, place) * scales[_scale_place(place)]).astype(x.dtype)

    return te.compute(x.shape, element, name="rounded")


def integer_product(
    rows: te.Tensor, scales: te.Tensor, integers: te.Tensor, row_scales: te.Tensor, *, dtype: str
) -> te.Tensor:
    """Rows (…, in) int8 with scales (…, 1), times the transpose of a matrix (out, in) int8 with scales (out, 1): (…,
    out) of `dtype`."""
    *tokens, columns = rows.shape
    along = te.reduce_axis((0, columns), "k")
    shape = (*tokens, integers.shape[0])
    sums = te.compute(
        shape,
        lambda *place: te.sum(
            rows[(*place[:-1], along)].astype("int32") * integers[place[-1], along].astype("int32"), axis=along
        ),
        name="sums",
    )

    def element(*place: tirx.Var) -> Expression:
        scale = scales[_scale_place(place)] * row_scales[place[-1], tirx.const(0, "int64")]
        return (sums[place].astype("float32") * scale).astype(dtype)

    return te.compute(shape, element, name="product")


def _whole(x: te.Tensor, scales: te.Tensor, place: Sequence[tirx.Var]) -> Expression:
    whole = tirx.nearbyint(x[tuple(place)].astype("float32") / scales[_scale_place(place)])
    most = tirx.const(LARGEST, "float32")
    return tirx.max(tirx.min(whole, most), -most)


def _scale_place(place: Sequence[tirx.Var]) -> tuple[Expression, ...]:
    return (*place[:-1], tirx.const(0, "int64"))
