"""How kernels read matrices in floats of 8 bits, and round what these are multiplied by."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tvm import te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.quantization import minifloat_kernels
from mlcbuild.compiler.quantization.float8.scheme import Float8Scheme, WeightScales
from mlcbuild.compiler.quantization.reader import Reader, restored_by, restoring_kernel, shape_of
from mlcbuild.compiler.quantization.scheme import Weight

_LEAST = 1e-10  # what MLC-LLM takes for the largest of a group of activations that are smaller


class Float8Reader(Reader):
    """The `Reader` of a scheme of floats of 8 bits."""

    scheme: Float8Scheme

    def restored(self, weight: Weight, stored: Sequence[nn.Tensor]) -> nn.Tensor:
        if not self.scheme.covers(weight.role):
            return stored[0]
        count = 1 if self.scheme.scales is None else 2
        kernel = restoring(self.scheme, *weight.shape)
        return restored_by(kernel, weight, stored[:count], self.scheme.model_dtype)

    def activations(self, weight: Weight, stored: Sequence[nn.Tensor], x: nn.Tensor) -> nn.Tensor:
        if not self.scheme.covers(weight.role):
            return x
        static = list(stored[2:]) if self.scheme.static_scales(weight) else []
        compute = functools.partial(rounded_activations, scheme=self.scheme)
        return nn.op.tensor_expr_op(compute, "round_activations", [x, *static])


@functools.cache
def restoring(scheme: Float8Scheme, *shape: int) -> tirx.PrimFunc:
    """The kernel from what is stored to a matrix (out, in), or to those of experts: float · scale, in float32, rounded
    to the model's type. One for all layers of that shape."""
    matrix = te.placeholder(shape_of(*shape), scheme.format.dtype, "weights")
    given = [matrix]
    if scheme.scales is not None:
        given.append(te.placeholder(shape_of(*scheme.scales.shape(shape)), "float32", "scales"))

    def element(*place: tirx.Var) -> tirx.Expr:
        value = minifloat_kernels.read(matrix[place], scheme.format)
        if scheme.scales is not None:
            value = value * given[1][_scale_of(place, scheme.scales)]
        return value.astype(scheme.model_dtype)

    return restoring_kernel(given, te.compute(shape_of(*shape), element, name="dequantize"))


def _scale_of(place: Sequence[tirx.Var], scales: WeightScales) -> tuple[tirx.Expr, ...]:
    *experts, row, column = place
    zero = tirx.const(0, "int64")
    if not scales.rows and not scales.columns:
        return tuple(experts) or (zero,)
    return (
        *experts,
        tirx.floordiv(row, scales.rows) if scales.rows else zero,
        tirx.floordiv(column, scales.columns) if scales.columns else zero,
    )


def rounded_activations(x: te.Tensor, *static: te.Tensor, scheme: Float8Scheme) -> te.Tensor:
    """x (…, in) with each number rounded to a float of 8 bits times its scale, in x's type."""
    kind, to = x.dtype, scheme.format
    if scheme.activations is None:
        return te.compute(
            x.shape,
            lambda *place: minifloat_kernels.rounded(x[place].astype("float32"), to).astype(kind),
            name="rounded",
        )
    *tokens, columns = x.shape
    group = scheme.activations.group or int(columns)
    groups = scheme.activations.groups(int(columns))
    along = te.reduce_axis((0, min(group, int(columns))), "place")

    def magnitude(*place: tirx.Expr) -> tirx.Expr:
        *token, number = place
        at = number * group + along
        value = tirx.abs(x[(*token, at)].astype("float32"))
        if int(columns) % group and groups > 1:
            value = tirx.if_then_else(at < columns, value, tirx.const(0, "float32"))
        return te.max(value, axis=along)

    largest = te.compute((*tokens, tirx.IntImm("int64", groups)), magnitude, name="largest")

    def element(*place: tirx.Expr) -> tirx.Expr:
        *token, column = place
        number = tirx.floordiv(column, group)
        scale = tirx.max(largest[(*token, number)], tirx.const(_LEAST, "float32")) / tirx.const(to.largest, "float32")
        for scales in static:
            scale = tirx.Select(scales[number] > tirx.const(0, "float32"), scales[number], scale)
        return (minifloat_kernels.rounded(x[place].astype("float32") / scale, to) * scale).astype(kind)

    return te.compute(x.shape, element, name="rounded")
