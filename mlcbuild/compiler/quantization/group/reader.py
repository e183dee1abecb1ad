"""How kernels read matrices of integers in groups: each element from its word and its scale."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tvm import te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.quantization.group.scheme import WORD_DTYPE, GroupScheme
from mlcbuild.compiler.quantization.reader import Reader, restoring_kernel
from mlcbuild.compiler.quantization.scheme import Weight


class GroupReader(Reader):
    """The `Reader` of a scheme of integers in groups."""

    scheme: GroupScheme

    def restored(self, weight: Weight, stored: Sequence[nn.Tensor]) -> nn.Tensor:
        if not self.scheme.covers(weight.role):
            return stored[0]
        matrix = nn.Tensor.placeholder(weight.shape, self.scheme.model_dtype)
        return nn.op.tensor_ir_op(restoring(self.scheme, *weight.shape), "dequantize", list(stored), matrix)


@functools.cache
def restoring(scheme: GroupScheme, *shape: int) -> tirx.PrimFunc:
    """The kernel from words and scales to a matrix, or to those of experts: (integer - max_int) * scale. One for all
    layers of that shape."""
    per_word, dtype = scheme.elements_per_word, scheme.model_dtype
    *rows, columns = shape
    groups = columns // scheme.group_size
    words = te.placeholder(_shape(*rows, groups * scheme.words_per_group), WORD_DTYPE, "words")
    scales = te.placeholder(_shape(*rows, groups), dtype, "scales")
    mask = tirx.const((1 << scheme.bits) - 1, WORD_DTYPE)
    offset = tirx.const(scheme.max_int, dtype)

    def element(*place: tirx.Var) -> tirx.Expr:
        *row, column = place
        word = words[(*row, column // per_word)]
        shift = (column % per_word * scheme.bits).astype(WORD_DTYPE)
        integer = tirx.bitwise_and(tirx.shift_right(word, shift), mask).astype(dtype)
        return (integer - offset) * scales[(*row, column // scheme.group_size)]

    return restoring_kernel((words, scales), te.compute(_shape(*shape), element, name="dequantize"))


def _shape(*sizes: int) -> tuple[tirx.IntImm, ...]:
    """Relax counts in int64; a plain int would become an int32."""
    return tuple(tirx.IntImm("int64", size) for size in sizes)
