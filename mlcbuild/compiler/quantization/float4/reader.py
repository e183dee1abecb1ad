"""How kernels read matrices in floats of 4 bits: each element from its word and its scale."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tvm import te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.quantization import minifloat_kernels
from mlcbuild.compiler.quantization.float4.scheme import PER_WORD, WORD_DTYPE, Float4Scheme
from mlcbuild.compiler.quantization.minifloat import E2M1, E4M3
from mlcbuild.compiler.quantization.reader import Reader, restored_by, restoring_kernel, shape_of
from mlcbuild.compiler.quantization.scheme import Weight


class Float4Reader(Reader):
    """The `Reader` of a scheme of floats of 4 bits."""

    scheme: Float4Scheme

    def restored(self, weight: Weight, stored: Sequence[nn.Tensor]) -> nn.Tensor:
        if not self.scheme.covers(weight.role):
            return stored[0]
        return restored_by(restoring(self.scheme, *weight.shape), weight, stored, self.scheme.model_dtype)


@functools.cache
def restoring(scheme: Float4Scheme, *shape: int) -> tirx.PrimFunc:
    """The kernel from words and scales to a matrix (out, in), or to those of experts: float · scale (· global scale),
    in float32, rounded to the model's type. One for all layers of that shape."""
    *rows, columns = shape
    words = te.placeholder(shape_of(*rows, columns // PER_WORD), WORD_DTYPE, "words")
    scales = te.placeholder(shape_of(*rows, columns // scheme.group_size), scheme.scale_dtype, "scales")
    given = [words, scales]
    if scheme.has_global_scale:
        given.append(te.placeholder(shape_of(*(rows[:-1] or (1,))), "float32", "global_scale"))

    def element(*place: tirx.Var) -> tirx.Expr:
        *row, column = place
        # 28 minus the place of its bits, which are multiples of four: an unsigned vector is never subtracted from one.
        shift = (column % PER_WORD * E2M1.bits).astype(WORD_DTYPE) ^ tirx.const(32 - E2M1.bits, WORD_DTYPE)
        value = minifloat_kernels.read_highest_bits(words[(*row, column // PER_WORD)] << shift, E2M1)
        scale = scales[(*row, column // scheme.group_size)]
        if not scheme.has_global_scale:
            return (value * minifloat_kernels.read_power(scale)).astype(scheme.model_dtype)
        value = value * minifloat_kernels.read(scale, E4M3)
        return (value * given[2][tuple(row[:-1]) or (tirx.const(0, "int64"),)]).astype(scheme.model_dtype)

    return restoring_kernel(given, te.compute(shape_of(*shape), element, name="dequantize"))
