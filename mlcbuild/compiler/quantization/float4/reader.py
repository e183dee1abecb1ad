"""How kernels read matrices in floats of 4 bits: each element from its word and its scale."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tvm import te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.quantization import minifloat_kernels
from mlcbuild.compiler.quantization.float4.scheme import PER_WORD, WORD_DTYPE, Float4Scheme
from mlcbuild.compiler.quantization.minifloat import E2M1, E4M3
from mlcbuild.compiler.quantization.reader import Reader, restoring_kernel
from mlcbuild.compiler.quantization.scheme import Weight


class Float4Reader(Reader):
    """The `Reader` of a scheme of floats of 4 bits."""

    scheme: Float4Scheme

    def restored(self, weight: Weight, stored: Sequence[nn.Tensor]) -> nn.Tensor:
        if not self.scheme.covers(weight.role):
            return stored[0]
        matrix = nn.Tensor.placeholder(weight.shape, self.scheme.model_dtype)
        return nn.op.tensor_ir_op(restoring(self.scheme, *weight.shape), "dequantize", list(stored), matrix)


@functools.cache
def restoring(scheme: Float4Scheme, *shape: int) -> tirx.PrimFunc:
    """The kernel from words and scales to a matrix (out, in), or to those of experts: float · scale (· global scale),
    in float32, rounded to the model's type. One for all layers of that shape."""
    *rows, columns = shape
    words = te.placeholder(_shape(*rows, columns // PER_WORD), WORD_DTYPE, "words")
    scales = te.placeholder(_shape(*rows, columns // scheme.group_size), scheme.scale_dtype, "scales")
    given = [words, scales]
    if scheme.has_global_scale:
        given.append(te.placeholder(_shape(*(rows[:-1] or (1,))), "float32", "global_scale"))

    def element(*place: tirx.Var) -> tirx.Expr:
        *row, column = place
        shift = (column % PER_WORD * E2M1.bits).astype(WORD_DTYPE)
        code = tirx.bitwise_and(tirx.shift_right(words[(*row, column // PER_WORD)], shift), tirx.const(15, WORD_DTYPE))
        value = minifloat_kernels.read_bits(code, E2M1)
        scale = scales[(*row, column // scheme.group_size)]
        if not scheme.has_global_scale:
            return (value * minifloat_kernels.read_power(scale)).astype(scheme.model_dtype)
        value = value * minifloat_kernels.read(scale, E4M3)
        return (value * given[2][tuple(row[:-1]) or (tirx.const(0, "int64"),)]).astype(scheme.model_dtype)

    return restoring_kernel(given, te.compute(_shape(*shape), element, name="dequantize"))


def _shape(*sizes: int) -> tuple[tirx.IntImm, ...]:
    """Relax counts in int64; a plain int would become an int32."""
    return tuple(tirx.IntImm("int64", size) for size in sizes)
