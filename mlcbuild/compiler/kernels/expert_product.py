"""What the product of rows with the matrices of their experts looks like, once everything that can be inlined is.

    C[t, j, n] += x[source, k] * W[experts[t, j], n, k]

Rows are counted by a token `t` and the number `j` of one of its `choices`. `source` is `numbers[t, j] // choices`, or
`t`; or x has the rows of C, x[t, j, k]. W is as in `matmul_pattern`, with the experts as the first axis of what is
stored. Whatever order the experts are in, rows of one expert that are next to each other can share its matrix: a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from mlcbuild.compiler.kernels.blocks import inline_all, plain_blocks
from mlcbuild.compiler.kernels.building import Buffer, Expression
from mlcbuild.compiler.kernels.computed_matrix import ComputedMatrix, match_computed_matrix
from mlcbuild.compiler.kernels.matmul_pattern import (
    MatrixProduct,
    PackedMatrix,
    is_sum_into,
    match_matrix,
    without_casts,
)


class ExpertMatrix:
    """One expert's matrix of a buffer that has all, read as if it were alone: at [n, k]."""

    def __init__(self, buffer: Buffer, expert: Expression) -> None:
        self._buffer = buffer
        self._expert = expert

    @property
    def dtype(self) -> str:
        return str(self._buffer.dtype)

    def __getitem__(self, place: tuple[Any, ...]) -> Expression:
        return self._buffer[(self._expert, *place)]


@dataclass(frozen=True, kw_only=True)
class ExpertProduct:
    """The product found in a kernel. `func` is the kernel, inlined; its rows are `tokens` times `choices`."""

    func: tirx.PrimFunc
    x: tirx.Var
    numbers: tirx.Var | None
    x_has_rows: bool  # x[t, j, k]
    experts: tirx.Var
    matrix: tirx.Var | PackedMatrix | ComputedMatrix
    output: tirx.Var
    tokens: int | Expression
    choices: int
    n: int
    k: int

    @property
    def rows(self) -> Expression:
        return self.tokens * self.choices

    @property
    def x_rows(self) -> Expression:
        """How many rows x has."""
        return self.rows if self.x_has_rows else self.x.shape[0]

    @property
    def words_and_scales(self) -> list[Buffer]:
        """The buffers that matrices are read of."""
        matrix = self.matrix
        if isinstance(matrix, ComputedMatrix):
            return [buffer for buffer in matrix.buffers if not buffer.same_as(self.experts)]
        return [matrix.words, matrix.scales] if isinstance(matrix, PackedMatrix) else [matrix]

    def expert(self, row: Expression) -> Expression:
        return self.experts[self._place(row)]

    def source(self, row: Expression) -> Expression:
        """The row of x that a row is computed of."""
        if self.x_has_rows:
            return row
        number = row if self.numbers is None else self.numbers[self._place(row)].astype("int64")
        return tirx.floordiv(number, self.choices)

    def x_row(self, source: Expression, k: Expression) -> Expression:
        """x at one of its rows, as stored."""
        return self.x[(*self._place(source), k)] if self.x_has_rows else self.x[source, k]

    def matrix_of(self, expert: Expression) -> Any:
        """One expert's matrix."""
        if isinstance(self.matrix, ComputedMatrix):
            return self.matrix.of_expert(self.experts, expert)
        expert = expert.astype("int64")
        if not isinstance(self.matrix, PackedMatrix):
            return ExpertMatrix(self.matrix, expert)
        words, scales = (ExpertMatrix(buffer, expert) for buffer in (self.matrix.words, self.matrix.scales))
        return PackedMatrix(
            words=words,
            scales=scales,
            bits=self.matrix.bits,
            per_word=self.matrix.per_word,
            group=self.matrix.group,
            offset=self.matrix.offset,
        )

    def run(self, first: Expression, length: int | Expression) -> ExpertRun:
        """`length` rows of one expert, from `first` on, as a product with one matrix."""
        return ExpertRun(
            func=self.func,
            x=self.x,
            x_indices=(),
            matrix=self.matrix_of(self.expert(first)),
            output=self.output,
            output_indices=(),
            rows=length,
            n=self.n,
            k=self.k,
            epilogue=None,
            of=self,
            first=first,
        )

    def _place(self, row: Expression) -> tuple[Expression, Expression]:
        return tirx.floordiv(row, self.choices), tirx.floormod(row, self.choices)


@dataclass(frozen=True, kw_only=True)
class ExpertRun(MatrixProduct):
    """A run of rows as the product of a matrix with the vectors of these rows."""

    of: ExpertProduct
    first: Expression
    source: Expression | None = None  # the row of x, where somebody who reads one only has found it before

    def x_at(self, row: Expression, k: Expression) -> Expression:
        return self.of.x_row(self.of.source(self.first + row) if self.source is None else self.source, k)

    def output_at(self, row: Expression, n: Expression) -> list[Expression]:
        return [*self.of._place(self.first + row), n]


def match_expert_product(func: tirx.PrimFunc) -> ExpertProduct | None:
    """The product in `func`, if that is all that it holds."""
    inlined = inline_all(func)
    blocks = None if inlined is None else plain_blocks(inlined)
    if inlined is None or blocks is None or len(blocks) != 1:
        return None
    store, axes = blocks[0].body, list(blocks[0].iter_vars)
    kinds = [axis.iter_type for axis in axes]
    if kinds != [tirx.IterVar.DataPar] * 3 + [tirx.IterVar.CommReduce] or not isinstance(store, tirx.BufferStore):
        return None
    if blocks[0].init is None or not is_sum_into(store):
        return None
    token, choice, n, k = (axis.var for axis in axes)
    tokens, *sizes = (axis.dom.extent for axis in axes)
    factors = without_casts(store.value.b)
    if not all(isinstance(size, tirx.IntImm) for size in sizes) or not isinstance(factors, tirx.Mul):
        return None
    if not _are(store.indices, (token, choice, n)):
        return None
    x, matrix = without_casts(factors.a), without_casts(factors.b)
    expert = _expert(matrix, n)
    found: tirx.Var | PackedMatrix | ComputedMatrix | None = None
    if expert is not None:
        found = match_matrix(matrix, n=n, k=k, expert=expert)
        if found is None:
            found = match_computed_matrix(matrix, n=n, k=k)
    experts = None if expert is None else _loaded(expert, (token, choice))
    if found is None or experts is None or not isinstance(x, tvm.ir.TensorLoad) or not x.indices[-1].same_as(k):
        return None
    has_rows = _are(x.indices, (token, choice, k))
    choices = int(sizes[0])
    numbers = _loaded(_divided(x.indices[0], choices), (token, choice)) if len(x.indices) == 2 else None
    if not has_rows and numbers is None and not _are(x.indices, (token, k)):
        return None
    return ExpertProduct(
        func=inlined,
        x=x.source,
        numbers=numbers,
        x_has_rows=has_rows,
        experts=experts,
        matrix=found,
        output=store.buffer,
        tokens=int(tokens) if isinstance(tokens, tirx.IntImm) else tokens,
        choices=choices,
        n=int(sizes[1]),
        k=int(sizes[2]),
    )


def _are(indices: Any, variables: tuple[tirx.Var, ...]) -> bool:
    """Whether indices are these variables. One of an axis that has one place may be zero."""
    found = list(indices)
    return len(found) == len(variables) and all(
        index.same_as(variable) or (isinstance(index, tirx.IntImm) and int(index) == 0)
        for index, variable in zip(found, variables, strict=True)
    )


def _divided(index: Expression, divisor: int) -> Expression:
    """What is divided; a division by one is none."""
    index = without_casts(index)
    divides = isinstance(index, tirx.FloorDiv) and isinstance(index.b, tirx.IntImm) and int(index.b) == divisor
    return index.a if divides else index


def _loaded(index: Expression, variables: tuple[tirx.Var, ...]) -> tirx.Var | None:
    """The buffer that an index is read of, at the place that the variables are."""
    load = without_casts(index)
    return load.source if isinstance(load, tvm.ir.TensorLoad) and _are(load.indices, variables) else None


def _expert(expression: Expression, n: tirx.Var) -> Expression | None:
    """The expert of which an expression reads the row n."""
    found: list[Expression] = []

    def look(load: Expression) -> Expression:
        if len(load.indices) == 3 and load.indices[1].same_as(n):
            found.append(load.indices[0])
        return load

    tvm_ffi.structural_map(expression, [(tvm.ir.TensorLoad, look)])
    return found[0] if found else None
