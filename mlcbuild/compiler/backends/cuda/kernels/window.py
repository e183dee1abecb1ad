"""TVM's attention kernels for GPUs, changed so that a sliding window hides keys by their positions.

TVM's cache drops what has left the window between two forward passes. It does not hide the older of the tokens that one
pass appends, nor the older tokens in the cache from the later of these. Here each query sees the keys that its position
allows, whatever the cache still holds.

Keys of a sink keep the distance from a query that they had as the window was just full (`models.window`). Where there
is one query for a sequence, its keys of the sink are rotated further by that. Where there are several, TVM's kernel
sees the other keys alone, and a second kernel adds those of the sink: few keys, so that it need not be quick.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
import tvm_ffi
from tvm import s_tir, tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels.launching import register
from mlcbuild.compiler.kernels.building import Buffer, Expression, converted, statement, store
from mlcbuild.compiler.kernels.rotary import angle, supports
from mlcbuild.compiler.models.window import SlidingWindow
from mlcbuild.errors import InternalError

_WARP = 32


def fits(original: tirx.PrimFunc, rope_scaling: Mapping[str, Any], window: SlidingWindow) -> bool:
    """Whether TVM's kernel can be changed: the kernel that adds a sink has to know the frequency rule."""
    return window.sink == 0 or supports(rope_scaling, int(original.params[0].shape[-1]))


def paged_decode(original: tirx.PrimFunc, window: SlidingWindow) -> tirx.PrimFunc:
    """One query token for each sequence. `original` is TVM's kernel, whose parameters are kept."""
    first_keys, positions = original.params[5], original.params[6]
    changed = 0

    def seen(branch: tirx.IfThenElse) -> tirx.Stmt:
        nonlocal changed
        condition = branch.condition
        if not isinstance(condition, tirx.LT) or not _stores_to(branch.then_case, "S_local"):
            return branch
        changed += 1
        key = kept.value + condition.a
        return _with_condition(branch, tirx.And(condition, sees(window, query=query, key=key)))

    def further(position: tirx.Add) -> Any:
        if not _is_load(position.a, first_keys):
            return position
        return sink_turned(window, query=query, key=position)

    query = _load(original.body, positions)
    kept = _FirstKey(first_keys, _load(original.body, first_keys).indices[0])
    # Positions of keys first: the conditions that come second name positions too.
    body = tvm_ffi.structural_map(original.body, (tirx.Add, further))
    body = kept.stored(tvm_ffi.structural_map(body, (tirx.IfThenElse, seen)))
    _require(original, changed, 1)
    return original.with_body(body)


def paged_prefill(original: tirx.PrimFunc, window: SlidingWindow, *, rope_scaling: Mapping[str, Any]) -> tirx.PrimFunc:
    """Query tokens of sequences over what the cache holds. `original` is TVM's kernel for a window that slides, whose
    parameters are kept."""
    queries, starts, pages, page_starts, page_numbers, lengths, first_keys, positions = original.params[:8]
    near = _near_keys(original, window, starts=starts, first_keys=first_keys, positions=positions)
    if window.sink == 0:
        return near
    page_size = int(pages.shape[3])

    def keys_of(sequence: Expression, _token: Expression) -> tuple[Expression, _Rows]:
        begin, end = T.bind(page_starts[sequence]), T.bind(page_starts[sequence + 1])
        last, offset, sink = (T.bind(lengths[row, sequence]) for row in range(3))
        count = T.if_then_else(begin != end, (end - begin - 1) * page_size + last - offset + sink, 0)

        def rows(head: Expression, key: Expression) -> tuple[_Row, _Row]:
            place = T.bind(T.if_then_else(key < sink, key, key - sink + offset))
            page = T.bind(page_numbers[begin + tirx.floordiv(place, page_size)])
            inside = T.bind(tirx.floormod(place, page_size))
            return (lambda d: pages[page, 0, head, inside, d]), (lambda d: pages[page, 1, head, inside, d])

        return count, rows

    sinks = _Sinks(original.params[7:], queries, starts, first_keys, int(pages.shape[2]), window, rope_scaling, keys_of)
    return _followed_by(near, sinks.statement())


def ragged_prefill(original: tirx.PrimFunc, window: SlidingWindow, *, rope_scaling: Mapping[str, Any]) -> tirx.PrimFunc:
    """Query tokens of sequences over keys and values given side by side. `original` is TVM's kernel, whose
    parameters are kept."""
    queries, starts, keys, values, key_starts, positions, first_keys = original.params[:7]
    near = _near_keys(original, window, starts=starts, first_keys=first_keys, positions=positions)
    if window.sink == 0:
        return near

    def keys_of(sequence: Expression, token: Expression) -> tuple[Expression, _Rows]:
        first = T.bind(key_starts[sequence])
        count = T.min(key_starts[sequence + 1] - first, token - starts[sequence] + 1)

        def rows(head: Expression, key: Expression) -> tuple[_Row, _Row]:
            row = T.bind(first + key)
            return (lambda d: keys[row, head, d]), (lambda d: values[row, head, d])

        return count, rows

    given = [positions, *original.params[7:]]
    sinks = _Sinks(given, queries, starts, first_keys, int(keys.shape[1]), window, rope_scaling, keys_of)
    return _followed_by(near, sinks.statement())


def sees(window: SlidingWindow, *, query: Expression, key: Expression) -> Expression:
    """Whether a query sees a key that is not behind it, by their positions."""
    near = query - key < window.size - window.sink
    return tirx.Or(key < window.sink, near) if window.sink else near


def sink_turned(window: SlidingWindow, *, query: Expression, key: Expression) -> Expression:
    """The position that a key is rotated for, if the only query that sees it is rotated for its own."""
    if window.sink == 0:
        return key
    return key + tirx.if_then_else(key < window.sink, tirx.max(query - (window.size - 1), 0), 0)


_Row = Callable[[Expression], Expression]
_Rows = Callable[[Expression, Expression], tuple[_Row, _Row]]  # of a head and a key: its key and its value


def _near_keys(
    original: tirx.PrimFunc, window: SlidingWindow, *, starts: Buffer, first_keys: Buffer, positions: Buffer
) -> tirx.PrimFunc:
    """TVM's kernel for several queries with the keys of the window alone, without the sink."""
    causal = next(parameter for parameter in original.params if str(parameter.name) == "causal")
    kept = _FirstKey(first_keys, _load(original.body, first_keys).indices[0])
    changed = 0

    def seen(branch: tirx.IfThenElse) -> tirx.Stmt:
        nonlocal changed
        if not _names(branch.condition, causal):
            return branch
        changed += 1
        # if_then_else(…, …, if_then_else(causal > 0, column < keys - (starts[b + 1] - starts[b]) + row + 1, …))
        limit = branch.condition.args[2].args[1]
        column, row = limit.a, limit.b.a.b
        sequence = limit.b.a.a.b.b.indices[0]
        # Rows behind the last query are computed as well, and go nowhere.
        token = tirx.min(starts[sequence] + row, starts[sequence + 1] - 1)
        key = kept.value + column
        near = positions[token] - key < window.size - window.sink
        if window.sink:
            near = tirx.And(key >= window.sink, near)
        return _with_condition(branch, tirx.And(branch.condition, near))

    try:
        body = kept.stored(tvm_ffi.structural_map(original.body, (tirx.IfThenElse, seen)))
    except AttributeError as error:
        raise _other_form(original) from error
    _require(original, changed, 2)
    return original.with_body(body)


class _FirstKey:
    """The position of a sequence's first key, which TVM's kernels read where they rotate keys, kept in a register.

    It is stored where the number of keys is: TVM's search for common subexpressions puts what a rotation and a
    condition further down have in common behind its first use.
    """

    def __init__(self, first_keys: Buffer, sequence: Expression) -> None:
        self._load = first_keys[sequence]
        self._register = tirx.decl_buffer((1,), "int32", name="first_key", scope="local")
        self.value = self._register[0]

    def stored(self, body: tirx.Stmt) -> tirx.Stmt:
        def statements(sequence: tirx.SeqStmt) -> tirx.Stmt:
            made: list[tirx.Stmt] = []
            for each in sequence.seq:
                made.append(each)
                if _stores_to(each, "kv_chunk_len"):
                    made += [tirx.AllocBuffer(self._register), tirx.BufferStore(self._register, self._load, [0])]
            return tirx.SeqStmt(made)

        return tvm_ffi.structural_map(body, (tirx.SeqStmt, statements))


class _Sinks:
    """A kernel that adds the keys of the sink to what others have computed: a warp for each query and head."""

    def __init__(
        self,
        given: Any,
        queries: Buffer,
        starts: Buffer,
        first_keys: Buffer,
        key_heads: int,
        window: SlidingWindow,
        rope_scaling: Mapping[str, Any],
        keys_of: Callable[[Expression, Expression], tuple[Expression, _Rows]],
    ) -> None:
        self.positions, self.output, self.logarithms, _causal = given[:4]
        self.mode, self.position_scale, self.theta, self.scale = given[4:]
        self.queries, self.starts, self.first_keys = queries, starts, first_keys
        self.window, self.rope_scaling, self.keys_of = window, rope_scaling, keys_of
        self.heads, self.head_dim = int(queries.shape[1]), int(queries.shape[2])
        self.group = self.heads // key_heads
        self.pairs = -(-self.head_dim // 2 // _WARP)  # of places that are rotated together, of a thread

    def statement(self) -> tirx.Stmt:
        return statement(self._launch)

    def _launch(self) -> None:
        with (
            T.thread_binding(0, self.queries.shape[0], thread="blockIdx.x") as token,
            T.thread_binding(0, self.heads, thread="blockIdx.y") as head,
            T.thread_binding(0, _WARP, thread="threadIdx.x") as lane,
        ):
            sequence = register("int32", T.int32(0))
            with T.serial(0, self.starts.shape[0] - 1) as number, gpu.when(self.starts[number] <= token):
                store(sequence, T.Cast("int32", number), 0)
            self._add(token, head, lane, T.bind(sequence[0]))

    def _add(self, token: Expression, head: Expression, lane: Expression, sequence: Expression) -> None:
        half = self.head_dim // 2
        count, rows = self.keys_of(sequence, token)
        first_key = T.bind(self.first_keys[sequence])
        sinks = register("int32", T.min(count, self.window.sink - first_key))[0]
        position = T.bind(T.min(self.positions[token], self.window.size - 1))
        sums = T.alloc_buffer((self.pairs, 2), "float32", scope="local")
        query = T.alloc_buffer((self.pairs, 2), "float32", scope="local")
        frequencies = T.alloc_buffer((self.pairs,), "float32", scope="local")
        largest = register("float32", self.logarithms[token, head])
        total = register("float32", T.float32(1))

        def of_thread(body: Callable[[Expression, Expression, tuple[Expression, Expression]], None]) -> None:
            """Calls `body` with the number of a pair, its place, and the places of its two elements."""
            with gpu.unrolled(self.pairs) as number:
                d = T.bind(number * _WARP + lane)
                with gpu.when(d < half):
                    body(number, d, (d, d + half))

        def begin(number: Expression, d: Expression, places: tuple[Expression, Expression]) -> None:
            turn = angle(T.float32(1), d, head_dim=self.head_dim, theta=self.theta, rope_scaling=self.rope_scaling)
            rotates = T.if_then_else(self.mode == 1, self.position_scale, T.float32(0))
            store(frequencies, turn, number)  # by itself: it has bindings, which TVM loses in a larger expression
            store(frequencies, frequencies[number] * rotates, number)
            for i, place in enumerate(places):
                store(query, T.Cast("float32", self.queries[token, head, place]), number, i)
                store(sums, T.Cast("float32", self.output[token, head, place]), number, i)

        def end(number: Expression, _d: Expression, places: tuple[Expression, Expression]) -> None:
            for i, place in enumerate(places):
                value = converted(sums[number, i] / total[0], str(self.output.dtype), 1)
                store(self.output, value, token, head, place)

        with gpu.when(sinks > 0):
            of_thread(begin)
            with T.serial(0, sinks) as key:
                key_row, value_row = rows(tirx.floordiv(head, self.group), key)
                distance = T.bind(T.Cast("float32", position - first_key - key))
                score = register("float32", T.float32(0))

                def multiply(number: Expression, _d: Expression, places: tuple[Expression, Expression]) -> None:
                    x, y = (register("float32", T.Cast("float32", key_row(place)))[0] for place in places)
                    u, v = query[number, 0], query[number, 1]
                    # The product of two pairs that are turned depends on the difference of their angles.
                    turn = register("float32", distance * frequencies[number])[0]
                    along, across = u * x + v * y, u * y - v * x
                    store(score, score[0] + (along * tirx.cos(turn) + across * tirx.sin(turn)), 0)

                of_thread(multiply)
                for mask in (16, 8, 4, 2, 1):
                    other = register("float32", gpu.from_lane_xor(score[0], mask))[0]
                    store(score, score[0] + other, 0)
                scaled = register("float32", score[0] * (self.scale * T.float32(math.log2(math.e))))[0]
                most = register("float32", T.max(largest[0], scaled))[0]
                fading = register("float32", tirx.exp2(largest[0] - most))[0]
                weight = register("float32", tirx.exp2(scaled - most))[0]
                store(largest, most, 0)
                store(total, total[0] * fading + weight, 0)

                def accumulate(number: Expression, _d: Expression, places: tuple[Expression, Expression]) -> None:
                    for i, place in enumerate(places):
                        value = register("float32", T.Cast("float32", value_row(place)))[0]
                        store(sums, sums[number, i] * fading + value * weight, number, i)

                of_thread(accumulate)
            of_thread(end)
            with gpu.when(lane == 0):
                store(self.logarithms, largest[0] + tirx.log2(total[0]), token, head)


def _followed_by(function: tirx.PrimFunc, launch: tirx.Stmt) -> tirx.PrimFunc:
    """A kernel that starts another device function behind its own."""
    root = function.body.block
    block = s_tir.SBlock(
        iter_vars=[],
        reads=[],
        writes=[],
        name_hint="root",
        body=tirx.SeqStmt([root.body, launch]),
        alloc_buffers=root.alloc_buffers,
    )
    return function.with_body(s_tir.SBlockRealize([], True, block))


def _with_condition(branch: tirx.IfThenElse, condition: Expression) -> tirx.IfThenElse:
    return tirx.IfThenElse(condition, branch.then_case, branch.else_case)


def _stores_to(body: tirx.Stmt, name: str) -> bool:
    return isinstance(body, tirx.BufferStore) and str(body.buffer.name) == name


def _is_load(expression: Any, buffer: Buffer) -> bool:
    return isinstance(expression, tvm.ir.TensorLoad) and expression.source.same_as(buffer)


def _load(body: tirx.Stmt, buffer: Buffer) -> Expression:
    """The load of a buffer of which a kernel has one element a sequence."""
    found: list[Any] = []

    def look(load: Any) -> Any:
        if _is_load(load, buffer):
            found.append(load)
        return load

    tvm_ffi.structural_map(body, (tvm.ir.TensorLoad, look))
    if not found:
        raise InternalError(f"TVM's attention kernel does not read {buffer.name}")
    return found[0]


def _names(expression: Expression, variable: tirx.Var) -> bool:
    found = False

    def look(each: tirx.Var) -> tirx.Var:
        nonlocal found
        found = found or each.same_as(variable)
        return each

    tvm_ffi.structural_map(expression, (tirx.Var, look))
    return found


def _require(original: tirx.PrimFunc, changed: int, expected: int) -> None:
    if changed != expected:
        raise _other_form(original)


def _other_form(original: tirx.PrimFunc) -> InternalError:
    name = original.attrs.get("global_symbol", "")
    return InternalError(f"TVM's kernel {name} hides keys in a form that is not known")
