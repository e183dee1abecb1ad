"""Rows of a matrix whose elements a kernel computes of stored ones, as a tensor core takes them: any packed integers,
floats of eight or four bits with scales, blocks of GGUF.

A thread has of a row some pieces of neighbouring places (`step_layout`). What it reads for a piece is asked for when
the step is (`read`): of what the places of a piece read next to each other, the elements in as large parts as their
addresses allow, and of what is the same for all of them, the one. Elements are computed when they are used (`word`), in
float32, and rounded once to what the vectors are of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
import tvm_ffi
from tvm import sym, tirx

from mlcbuild.compiler.backends.cuda.kernels import exact_conversions
from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels.step_layout import StepLayout
from mlcbuild.compiler.kernels.building import Buffer, Expression, store
from mlcbuild.compiler.kernels.computed_matrix import ComputedMatrix, exchanged
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct

_LARGEST = 16  # bytes that a thread reads at once
_PLACES = (1, 2, 4, 8, 10, 16)  # of a row, that one stored element may be for


def layout_of(matrix: ComputedMatrix) -> StepLayout:
    """Pieces as long as what a thread reads at once is for, so that threads which are neighbours read neighbouring
    bytes; of 40 places where groups of ten of them share a word."""
    runs = [_run_of(load, matrix.k, 32) for load in loads(matrix.expression)]
    if None in runs and all(_run_of(load, matrix.k, 40) for load in loads(matrix.expression)):
        return StepLayout(piece=40, pieces=1)
    longest = max((run for run in runs if run is not None), key=lambda run: run.elements, default=None)
    if longest is None or longest.elements == 1 or not longest.along_row:
        return StepLayout(piece=32, pieces=1)
    piece = min(32, max(8, longest.at_once * longest.places))
    return StepLayout(piece=piece, pieces=32 // piece)


class ElementRows:
    """What a thread has of `count` rows of a `ComputedMatrix` for one step."""

    def __init__(self, product: MatrixProduct, layout: StepLayout, count: int) -> None:
        self._product = product
        self._layout = layout
        self._count = count
        matrix: ComputedMatrix = product.matrix
        self._matrix = matrix
        self._expression = exact_conversions.quick(rounded_once(matrix.expression, str(product.x.dtype)))
        self._runs: list[tuple[Any, _Run, Buffer]] = []
        self._row = T.alloc_buffer((count,), "int64", scope="local")
        self._pieces = T.alloc_buffer((layout.pieces,), "int64", scope="local")
        for load in loads(self._expression):
            if (run := _run_of(load, matrix.k, layout.piece)) is not None:
                size = count * layout.pieces * run.elements
                self._runs.append((load, run, T.alloc_buffer((size,), str(load.source.dtype), scope="local")))

    def read(self, slot: Expression, row: Expression, step: Expression, thread: Expression) -> None:
        """Asks for the pieces of a row that thread `thread` of four has in a step. In place of one behind the row's end
        it reads the row's first, which meets zeros of the vectors."""
        layout, k = self._layout, self._product.k
        row = row.astype("int64")
        store(self._row, row, slot)
        with gpu.unrolled(layout.pieces) as piece:
            number = layout.number(step, piece, thread).astype("int64")
            if k % layout.step:
                number = tirx.Select(number * layout.piece < k, number, tirx.const(0, "int64"))
            store(self._pieces, number, piece)
            first = number * layout.piece
            for load, run, local in self._runs:
                indices = [self._placed(index, row, first) for index in load.indices]
                with gpu.unrolled(run.elements // run.at_once) as part:
                    to = (slot * layout.pieces + piece) * run.elements + part * run.at_once
                    place = [*indices]
                    place[run.axis] = place[run.axis] + part * run.at_once
                    if run.at_once == 1:
                        store(local, load.source[tuple(place)], to)
                    else:
                        size = run.at_once * _size(load)
                        gpu.load(gpu.at(local, to), gpu.at(load.source, *place), size)

    def take(self, other: ElementRows) -> None:
        """Has what `other` has."""
        for (_, run, local), (_, _, others) in zip(self._runs, other._runs, strict=True):
            with gpu.unrolled(self._count * self._layout.pieces * run.elements) as place:
                store(local, others[place], place)
        with gpu.unrolled(self._count) as slot:
            store(self._row, other._row[slot], slot)
        with gpu.unrolled(self._layout.pieces) as piece:
            store(self._pieces, other._pieces[piece], piece)

    def word(self, slot: Expression, word: Expression, to: Buffer) -> None:
        """Eight elements, into four registers."""
        for pair in range(4):
            low, high = (self._element(slot, word, 2 * pair + place) for place in range(2))
            if str(self._expression.ty.dtype) == "float32":
                gpu.pack(gpu.at(to, pair), low, high, str(self._product.x.dtype))
            else:
                gpu.join(gpu.at(to, pair), low, high)

    def _element(self, slot: Expression, word: Expression, place: int) -> Expression:
        piece, within = self._layout.piece_of(word)
        within = within + place

        def from_registers(load: Expression) -> Expression:
            for other, run, local in self._runs:
                if tvm_ffi.structural_equal(load, other):
                    begin = (slot * self._layout.pieces + piece) * run.elements
                    return local[begin + tirx.floordiv(within, run.places)]
            return load

        read = tvm_ffi.structural_map(self._expression, [(tvm.ir.TensorLoad, from_registers)])
        return self._placed(read, self._row[slot], self._pieces[piece] * self._layout.piece + within)

    def _placed(self, expression: Expression, row: Expression, k: Expression) -> Expression:
        return exchanged(expression, {self._matrix.n: row, self._matrix.k: k})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """How a load of an element's expression reads for the places of a piece: `elements` along its index `axis`, each
    for `places` of them, `at_once` of which are read together. `along_row`: they lie next to each other."""

    axis: int
    places: int
    elements: int
    at_once: int
    along_row: bool


def rounded_once(expression: Expression, dtype: str) -> Expression:
    """What an element in float32 is rounded from to `dtype`, float16 or bfloat16: in float32, or already a float16."""
    inner = expression.value if isinstance(expression, tirx.Cast) else expression
    if str(inner.ty.dtype) != dtype:
        return expression
    if isinstance(inner, tirx.Cast) and str(inner.value.ty.dtype) == "float32":
        return inner.value
    return inner if dtype == "float16" else expression


def loads(expression: Expression) -> list[Expression]:
    """The loads in an expression, each once."""
    found: list[Expression] = []

    def look(load: Expression) -> Expression:
        if not any(tvm_ffi.structural_equal(load, other) for other in found):
            found.append(load)
        return load

    tvm_ffi.structural_map(expression, [(tvm.ir.TensorLoad, look)])
    return found


def _run_of(load: Expression, k: tirx.Var, size: int) -> _Run | None:
    """None where the elements that are read for a piece of `size` places are not known to be one, or neighbours along
    one index."""
    piece, place = tirx.Var("piece", "int64"), tirx.Var("place", "int64")
    analyzer = sym.Analyzer()
    analyzer.bind(piece, tvm.ir.Range(0, 1 << 20))
    analyzer.bind(place, tvm.ir.Range(0, size))
    growing: list[tuple[int, int]] = []
    for axis, index in enumerate(load.indices):
        if loads(index):
            return None
        begin = exchanged(index, {k: piece * size})
        grows = analyzer.simplify(exchanged(index, {k: piece * size + place}) - begin)
        if isinstance(grows, tirx.IntImm) and int(grows) == 0:
            continue
        places = next((each for each in _PLACES if analyzer.can_prove_equal(grows, place // each)), None)
        if places is None or size % places:
            return None
        growing.append((axis, places))
    if len(growing) > 1:
        return None
    if not growing:
        return _Run(axis=0, places=size, elements=1, at_once=1, along_row=False)
    ((axis, places),) = growing
    last = len(load.indices) - 1
    at_once = 1
    if axis == last:
        begin = exchanged(load.indices[last], {k: piece * size})
        number = math.gcd(_multiple_of(begin, analyzer), int(load.source.shape[last]), size // places)
        at_once = max(1, math.gcd(_LARGEST, number * _size(load)) // _size(load))
    return _Run(axis=axis, places=places, elements=size // places, at_once=at_once, along_row=axis == last)


def _multiple_of(index: Expression, analyzer: Any) -> int:
    """A power of two that an index is a multiple of, `_LARGEST` at most."""
    size = _LARGEST
    while size > 1 and not analyzer.can_prove_equal(tirx.floormod(index, size), tirx.const(0, "int64")):
        size //= 2
    return size


def _size(load: Expression) -> int:
    """Bytes of an element."""
    return int(tvm.runtime.DataType(str(load.source.dtype)).bits) // 8
