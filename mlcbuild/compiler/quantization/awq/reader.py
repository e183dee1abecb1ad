"""How kernels read integers with zero points: each element from its word, its group's zero point and its scale."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tvm import te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.quantization.awq.scheme import BITS, LANES, LARGEST, WORD_DTYPE, AwqScheme
from mlcbuild.compiler.quantization.reader import Reader, restored_by, restoring_kernel, shape_of
from mlcbuild.compiler.quantization.scheme import Weight


class AwqReader(Reader):
    """The `Reader` of a scheme of integers with zero points."""

    scheme: AwqScheme

    def restored(self, weight: Weight, stored: Sequence[nn.Tensor]) -> nn.Tensor:
        if not self.scheme.covers(weight.role):
            return stored[0]
        return restored_by(restoring(self.scheme, *weight.shape), weight, stored, self.scheme.model_dtype)


@functools.cache
def restoring(scheme: AwqScheme, *shape: int) -> tirx.PrimFunc:
    """The kernel from words, zero points and scales to a matrix (out, in), or to those of experts: (integer - zero) *
    scale. One for all layers of that shape."""
    *experts, rows, columns = shape
    groups, dtype = scheme.groups(columns), scheme.model_dtype
    words = te.placeholder(shape_of(*experts, columns, rows // LANES), WORD_DTYPE, "words")
    zeros = te.placeholder(shape_of(*experts, groups, rows // LANES), WORD_DTYPE, "zeros")
    scales = te.placeholder(shape_of(*experts, groups, rows), dtype, "scales")
    mask = tirx.const(LARGEST, WORD_DTYPE)

    def element(*place: tirx.Var) -> tirx.Expr:
        *expert, row, column = place
        group, word = column // scheme.group_size, row // LANES
        # `scheme.PLACES` as a formula: outputs with even numbers come first.
        shift = ((row % LANES // 2 + row % 2 * (LANES // 2)) * BITS).astype(WORD_DTYPE)
        integer = tirx.bitwise_and(tirx.shift_right(words[(*expert, column, word)], shift), mask).astype(dtype)
        zero = tirx.bitwise_and(tirx.shift_right(zeros[(*expert, group, word)], shift), mask).astype(dtype)
        return (integer - zero) * scales[(*expert, group, row)]

    return restoring_kernel((words, zeros, scales), te.compute(shape_of(*shape), element, name="dequantize"))
