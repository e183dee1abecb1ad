"""How kernels read integers with zero points: each element from its word, its group's zero point and its scale."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tvm import te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.quantization.awq.scheme import BITS, LANES, LARGEST, WORD_DTYPE, AwqScheme
from mlcbuild.compiler.quantization.reader import Reader, restoring_kernel
from mlcbuild.compiler.quantization.scheme import Weight


class AwqReader(Reader):
    """The `Reader` of a scheme of integers with zero points."""

    scheme: AwqScheme

    def restored(self, weight: Weight, stored: Sequence[nn.Tensor]) -> nn.Tensor:
        if not self.scheme.covers(weight.role):
            return stored[0]
        matrix = nn.Tensor.placeholder(weight.shape, self.scheme.model_dtype)
        return nn.op.tensor_ir_op(restoring(self.scheme, *weight.shape), "dequantize", list(stored), matrix)


@functools.cache
def restoring(scheme: AwqScheme, *shape: int) -> tirx.PrimFunc:
    """The kernel from words, zero points and scales to a matrix (out, in), or to those of experts: (integer - zero) *
    scale. One for all layers of that shape."""
    *experts, rows, columns = shape
    groups, dtype = scheme.groups(columns), scheme.model_dtype
    words = te.placeholder(_shape(*experts, columns, rows // LANES), WORD_DTYPE, "words")
    zeros = te.placeholder(_shape(*experts, groups, rows // LANES), WORD_DTYPE, "zeros")
    scales = te.placeholder(_shape(*experts, groups, rows), dtype, "scales")
    mask = tirx.const(LARGEST, WORD_DTYPE)

    def element(*place: tirx.Var) -> tirx.Expr:
        *expert, row, column = place
        group, word = column // scheme.group_size, row // LANES
        # `scheme.PLACES` as a formula: outputs with even numbers come first.
        shift = ((row % LANES // 2 + row % 2 * (LANES // 2)) * BITS).astype(WORD_DTYPE)
        integer = tirx.bitwise_and(tirx.shift_right(words[(*expert, column, word)], shift), mask).astype(dtype)
        zero = tirx.bitwise_and(tirx.shift_right(zeros[(*expert, group, word)], shift), mask).astype(dtype)
        return (integer - zero) * scales[(*expert, group, row)]

    return restoring_kernel((words, zeros, scales), te.compute(_shape(*shape), element, name="dequantize"))


def _shape(*sizes: int) -> tuple[tirx.IntImm, ...]:
    """Relax counts in int64; a plain int would become an int32."""
    return tuple(tirx.IntImm("int64", size) for size in sizes)
