"""Kernels that work on rows: element-wise ones, norms, softmax.

All blocks have the same outer axes and go along the last one, to reduce it or to write each place. They are run one
after another for each row, in vectors along it; threads share the rows where there is enough to do. A block that does
not go into vectors keeps its own body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
import tvm_ffi
from tvm import s_tir, tirx

from mlcbuild.compiler.kernels.blocks import inline_all, is_constant, is_reduction, is_spatial, plain_blocks
from mlcbuild.compiler.kernels.building import (
    LANES,
    WORTH_THREADS,
    Expression,
    horizontal,
    lanes,
    loop,
    splat,
    statement,
    store,
    with_body,
)
from mlcbuild.compiler.kernels.vectorizing import VectorizedExpression

_FUNCTION_COST = 8  # what an exponential costs, in multiplications


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A block that goes along a row. Its axes that have one place are told apart from those that count."""

    block: s_tir.SBlock
    outer: tuple[tirx.IterVar, ...]
    along: tirx.IterVar | None  # None: a block that does one thing a row

    @property
    def extent(self) -> int:
        """The number of places along the row."""
        return 0 if self.along is None else int(self.along.dom.extent)

    def values(self, places: list[Expression], along: Expression | None) -> list[Expression]:
        """What the block's axes are at a row, and a place along it."""
        known = {axis.var: place for axis, place in zip(self.outer, places, strict=True)}
        if self.along is not None and along is not None:
            known[self.along.var] = along
        axes = self.block.iter_vars if along is not None or self.along is None else self.row_axes
        return [_of_type(known.get(axis.var, 0), axis.var.ty.dtype) for axis in axes]

    @property
    def row_axes(self) -> list[tirx.IterVar]:
        """All axes but the one along the row."""
        return [axis for axis in self.block.iter_vars if self.along is None or not axis.var.same_as(self.along.var)]


def _of_type(value: Expression, dtype: Any) -> Expression:
    """A loop that counts in 32 bits may run along an axis of 64."""
    return tirx.const(value, dtype) if isinstance(value, int) else value.astype(dtype)


@dataclass(frozen=True, kw_only=True)
class _Rows:
    lines: list[_Line]
    outer: list[Expression]  # the extents of the outer axes


def schedule_rows(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """None unless all blocks of `func` go along rows of the same outer axes."""
    del target
    inlined = inline_all(func)
    blocks = None if inlined is None else plain_blocks(inlined)
    rows = None if blocks is None else _match(blocks)
    if inlined is None or rows is None:
        return None
    return with_body(inlined, [statement(lambda: _run(rows))], scratch=[])


def _match(blocks: list[s_tir.SBlock]) -> _Rows | None:
    long = [[axis for axis in block.iter_vars if not is_constant(axis.dom.extent, 1)] for block in blocks]
    deepest = max(long, key=len)
    if not deepest:
        return None
    outer = [axis.dom.extent for axis in deepest[:-1]]
    lines = []
    for block, axes in zip(blocks, long, strict=True):
        line = _line(block, axes, outer)
        if line is None:
            return None
        lines.append(line)
    return _Rows(lines=lines, outer=outer) if _stay_in_rows(lines) else None


def _line(block: s_tir.SBlock, axes: list[tirx.IterVar], outer: list[Expression]) -> _Line | None:
    depth = len(outer)
    if len(axes) not in (depth, depth + 1) or not all(is_spatial(axis) for axis in axes[:depth]):
        return None
    if not all(tvm_ffi.structural_equal(axis.dom.extent, extent) for axis, extent in zip(axes, outer, strict=False)):
        return None
    along = axes[depth] if len(axes) > depth else None
    if along is not None:
        counted = isinstance(along.dom.extent, tirx.IntImm) and (is_spatial(along) or is_reduction(along))
        if not counted or not along.var.same_as(block.iter_vars[-1].var):
            return None
    return _Line(block=block, outer=tuple(axes[:depth]), along=along)


def _stay_in_rows(lines: list[_Line]) -> bool:
    """Whether what a block reads of an earlier one was written for the same row."""
    written: list[tuple[Any, list[int | None]]] = []  # a buffer, and the outer axis that each index is
    for line in lines:
        variables = [axis.var for axis in line.outer]
        for read in line.block.reads:
            for buffer, axes in written:
                if not read.source.same_as(buffer):
                    continue
                for axis, place in zip(axes, read.region, strict=True):
                    if axis is not None and not (place.min.same_as(variables[axis]) and is_constant(place.extent, 1)):
                        return False
        for write in line.block.writes:
            found = [_index_of(place.min, variables) for place in write.region]
            if any(axis not in found for axis in range(len(variables))):
                return False
            written.append((write.source, found))
    return True


def _index_of(expression: Expression, variables: list[tirx.Var]) -> int | None:
    return next((number for number, variable in enumerate(variables) if expression.same_as(variable)), None)


def _run(rows: _Rows) -> None:
    work: Expression = sum(_cost(line) for line in rows.lines)
    for extent in rows.outer:
        work = work * extent
    if not rows.outer or isinstance(work, tirx.IntImm):
        _nest(rows, [], parallel=bool(rows.outer) and int(work) >= WORTH_THREADS)
    elif all(line.extent % LANES == 0 and _in_vectors(line) is not None for line in rows.lines):
        with T.If(tirx.all(work >= WORTH_THREADS, rows.outer[0] > 1)):
            with T.Then():
                _nest(rows, [], parallel=True)
            with T.Else():
                _nest(rows, [], parallel=False)
    else:
        # A block's own body may not stand in two places.
        _nest(rows, [], parallel=False)


def _cost(line: _Line) -> int:
    """What a row costs, in multiplications."""
    if line.along is None or not isinstance(line.block.body, tirx.BufferStore):
        return line.extent
    value = VectorizedExpression(line.block.body.value, axis=line.along.var, extent=line.extent, count=LANES)
    return line.extent * (_FUNCTION_COST if value.calls_functions() else 1)


def _nest(rows: _Rows, places: list[Expression], *, parallel: bool) -> None:
    """The outer loops; threads share the first."""
    if len(places) == len(rows.outer):
        for line in rows.lines:
            _row(line, places)
        return
    with loop(rows.outer[len(places)], parallel=parallel) as place:
        _nest(rows, [*places, place], parallel=False)


def _row(line: _Line, places: list[Expression]) -> None:
    """One block for one row."""
    if line.along is None:
        T.add_to_parent(s_tir.SBlockRealize(line.values(places, None), True, line.block))
        return
    vectors = _in_vectors(line)
    whole = 0
    if vectors is not None:
        T.add_to_parent(s_tir.SBlockRealize(line.values(places, None), True, vectors))
        whole = line.extent // LANES * LANES
    if whole < line.extent:
        with loop(line.extent - whole) as rest:
            T.add_to_parent(s_tir.SBlockRealize(line.values(places, whole + rest), True, line.block))


def _in_vectors(line: _Line) -> s_tir.SBlock | None:
    """The whole vectors of a row as a block with the outer axes alone; None where the block does not fit.

    What is left of a reduced row is added to the result by the block itself, which starts anew at the first place only.
    """
    block, axis, extent = line.block, line.along, line.extent
    body = block.body
    if axis is None or not isinstance(body, tirx.BufferStore) or extent < LANES:
        return None
    reduced = is_reduction(axis)
    value = _reduced_value(block) if reduced else body.value
    if value is None or "float" not in str(body.buffer.dtype):
        return None
    if not reduced and not body.indices[-1].same_as(axis.var):
        return None
    vector = VectorizedExpression(value, axis=axis.var, extent=extent, count=LANES)
    outer_indices = body.indices if reduced else body.indices[:-1]
    if not vector.supported() or any(vector.depends(index) for index in outer_indices):
        return None

    def run() -> None:
        vector.prepare()
        if reduced:
            _reduce(block, vector, extent // LANES)
        else:
            with loop(extent // LANES) as step:
                place = step * LANES
                store(body.buffer, vector.at(place), *outer_indices, lanes(place, LANES))

    return s_tir.SBlock(
        iter_vars=line.row_axes, reads=[], writes=[], name_hint=f"{block.name_hint}_vectors", body=statement(run)
    )


def _reduced_value(block: s_tir.SBlock) -> Expression | None:
    """e where the block computes B[..] = B[..] + e, or the smaller or larger of them."""
    value = block.body.value
    known = isinstance(value, (tirx.Add, tirx.Max, tirx.Min)) and isinstance(value.a, tvm.ir.TensorLoad)
    if not known or not value.a.source.same_as(block.body.buffer):
        return None
    started = isinstance(block.init, tirx.BufferStore) and isinstance(block.init.value, tirx.FloatImm)
    return value.b if started else None


def _reduce(block: s_tir.SBlock, vector: VectorizedExpression, steps: int) -> None:
    body = block.body
    combine = type(body.value)
    total = T.alloc_buffer((LANES,), str(body.buffer.dtype))
    whole = lanes(0, LANES)
    store(total, splat(block.init.value, LANES), whole)
    with loop(steps) as step:
        store(total, combine(total[whole], vector.at(step * LANES)), whole)
    store(body.buffer, horizontal(combine, total, LANES), *body.indices)
