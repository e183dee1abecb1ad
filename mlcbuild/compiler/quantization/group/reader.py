"""How kernels read matrices of integers in groups: each element from its word and its scale."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.quantization.group.scheme import WORD_DTYPE, GroupScheme
from mlcbuild.compiler.quantization.reader import Reader, restored_by, restoring_kernel, shape_of
from mlcbuild.compiler.quantization.scheme import Weight


class GroupReader(Reader):
    """The `Reader` of a scheme of integers in groups."""

    scheme: GroupScheme

    def restored(self, weight: Weight, stored: Sequence[nn.Tensor]) -> nn.Tensor:
        if not self.scheme.covers(weight.role):
            return stored[0]
        kernel = restoring(self.scheme, *weight.shape, by_columns=self.scheme.is_by_columns(weight.role))
        return restored_by(kernel, weight, stored, self.scheme.model_dtype)


@functools.cache
def restoring(scheme: GroupScheme, *shape: int, by_columns: bool = False) -> tirx.PrimFunc:
    """The kernel from words and scales to a matrix (out, in), or to those of experts: (integer - max_int) * scale. One
    for all layers of that shape. What is stored `by_columns` has `out` as its last axis."""
    per_word, dtype = scheme.elements_per_word, scheme.model_dtype
    *rows, columns = shape
    groups = scheme.groups(columns)

    def stored(row: Sequence[Any], along: Any) -> tuple[Any, ...]:
        """A place, or a size, in what is stored, by that of a row and that along it."""
        return (along, *row) if by_columns else (*row, along)

    words = te.placeholder(shape_of(*stored(rows, groups * scheme.words_per_group)), WORD_DTYPE, "words")
    scales = te.placeholder(shape_of(*stored(rows, groups)), dtype, "scales")
    mask = tirx.const((1 << scheme.bits) - 1, WORD_DTYPE)
    offset = tirx.const(scheme.max_int, dtype)

    def element(*place: tirx.Var) -> tirx.Expr:
        *row, column = place
        word = words[stored(row, column // per_word)]
        shift = (column % per_word * scheme.bits).astype(WORD_DTYPE)
        integer = tirx.bitwise_and(tirx.shift_right(word, shift), mask).astype(dtype)
        return (integer - offset) * scales[stored(row, column // scheme.group_size)]

    return restoring_kernel((words, scales), te.compute(shape_of(*shape), element, name="dequantize"))
