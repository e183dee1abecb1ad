"""Attention of one new token of each sequence over the paged key-value cache, in place of TVM's kernel for GPUs and
with its parameters.

A block has a sequence, a key-value head and up to eight of the query heads that share it. Each of its warps takes 16
tokens at a time: it asks for all their keys and values, 16 bytes a thread and load, multiplies both with tensor cores,
and keeps a running maximum and sum of its own; warps meet once, at the end. Which place of a head is which place of a
tensor core's operand does not matter as long as queries are laid out as keys are, and results are written where values
came from. So every thread reads what it multiplies, and nothing goes through shared memory before the end:

- scores (heads, tokens) = queries (heads, places) times keys (places, tokens): thread 4 g + t has parts of the keys of
  tokens g and g + 8, and of head g's query;
- results (places, heads) = values (places, tokens) times weights (tokens, heads): thread 4 g + t has parts of the
  values of tokens 2t, 2t + 1, 2t + 8 and 2t + 9, and the scores that it got are those of head g and these tokens.

Where sequences are long and blocks are few, several blocks share a sequence. They leave what they have in memory that
the host takes from TVM's pool for the time of a call, and a second launch merges it.

As in TVM, a head's result comes with the base-2 logarithm of its softmax's denominator, so that the results over
several ranges of keys can be merged. Queries and keys come rotated (`rotary_mode` 0), or are rotated here (1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda import architectures
from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels.launching import register
from mlcbuild.compiler.backends.cuda.kernels.window import sees, sink_turned
from mlcbuild.compiler.kernels.building import Buffer, Expression, replace_body, statement, store
from mlcbuild.compiler.kernels.rotary import angle, supports
from mlcbuild.compiler.models.window import SlidingWindow

TOKENS = 16  # of a step of a warp
HEADS = 8  # of a block: the columns of a tensor core's result
_WARP = 32
_MOST_PARTS = _WARP  # blocks of a sequence: the threads of a warp weigh one each
_SLOTS = 8  # threads of a place, as parts are merged
_NO_SCORE = -5e4  # TVM's score where there are no keys
_HIDDEN = -1e30  # what a token behind the last one scores


@dataclass(frozen=True, kw_only=True)
class DecodeShape:
    """How the work is shared: `warps` of a block; the number of `blocks` that are enough for a GPU, below which several
    share a sequence, if it has as many tokens as one block can have `alone`; `tokens` that a block of several has at
    least."""

    warps: int = 2
    blocks: int = 396
    tokens: int = 32
    alone: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.warps <= 16 or self.blocks < 1 or self.tokens < TOKENS:
            raise ValueError(f"no way to share the work: {self}")


def fits(original: tirx.PrimFunc, rope_scaling: Mapping[str, Any], target: tvm.target.Target) -> bool:
    """Whether `paged_decode` can stand for one of TVM's kernels."""
    queries = original.params[0]
    head_dim = int(queries.shape[2])
    return (
        str(queries.dtype) == "float16"
        and head_dim % 16 == 0
        and head_dim <= 128
        and supports(rope_scaling, head_dim)
        and architectures.has_mma_m16n8k16(str(target.attrs["arch"]))
    )


def paged_decode(
    original: tirx.PrimFunc,
    *,
    rope_scaling: Mapping[str, Any],
    sliding_window: bool = False,
    window: SlidingWindow | None = None,
    shape: DecodeShape | None = None,
) -> tirx.PrimFunc:
    """One query token for each sequence. `original` is TVM's kernel, whose parameters are kept.

    `sliding_window` says that a sequence in the cache may have lost tokens; `window` is what a query sees of it.
    """
    call = _Call(
        original, shape or DecodeShape(), sliding_window=sliding_window, window=window, rope_scaling=rope_scaling
    )
    return replace_body(original, statement(call.run))


class _Call:
    """What the host does: it starts one kernel or two."""

    def __init__(
        self,
        original: tirx.PrimFunc,
        shape: DecodeShape,
        *,
        sliding_window: bool,
        window: SlidingWindow | None,
        rope_scaling: Mapping[str, Any],
    ) -> None:
        self.queries, self.pages, self.page_starts, self.page_numbers, self.lengths = original.params[:5]
        self.key_positions, self.query_positions, self.output, self.logarithms = original.params[5:9]
        self.mode, self.position_scale, self.theta, self.scale = original.params[9:]
        self.shape = shape
        self.sliding_window, self.window = sliding_window, window
        self.rope_scaling = rope_scaling
        self.batch = self.queries.shape[0]
        self.heads, self.head_dim = int(self.queries.shape[1]), int(self.queries.shape[2])
        self.key_heads, self.page_size = int(self.pages.shape[2]), int(self.pages.shape[3])
        self.group = self.heads // self.key_heads
        self.tiles = -(-self.group // HEADS)

    def run(self) -> None:
        # The sizes are written out: TVM moves allocations before everything else.
        sums = T.alloc_buffer((self.batch, self.heads, self._parts(), self.head_dim), "float32")
        states = T.alloc_buffer((self.batch, self.heads, self._parts(), 2), "float32")
        self.parts = T.bind(self._parts())
        with T.If(self.mode == 1):
            with T.Then():
                self.attend(sums, states, rotates=True)
            with T.Else():
                self.attend(sums, states, rotates=False)
        with gpu.when(self.parts > 1):
            self.merge(sums, states)

    def _parts(self) -> Expression:
        """How many blocks share a sequence, whose length is taken to be the average of all."""
        batch = T.max(self.batch, 1)
        tokens = tirx.floordiv(self.page_numbers.shape[0] * self.page_size, batch)
        wanted = tirx.floordiv(self.shape.blocks, batch * (self.key_heads * self.tiles))
        enough = T.min(tirx.floordiv(tokens, self.shape.alone), 1)
        worthwhile = tirx.floordiv(tokens, self.shape.tokens) * enough
        return T.max(T.min(T.min(wanted, worthwhile), _MOST_PARTS), 1)

    def attend(self, sums: Buffer, states: Buffer, *, rotates: bool) -> None:
        with (
            T.thread_binding(0, self.key_heads * self.tiles, thread="blockIdx.x") as head,
            T.thread_binding(0, self.parts, thread="blockIdx.y") as part,
            T.thread_binding(0, self.batch, thread="blockIdx.z") as sequence,
            T.thread_binding(0, self.shape.warps, thread="threadIdx.y") as warp,
            T.thread_binding(0, _WARP, thread="threadIdx.x") as lane,
        ):
            block = _Block(self, head=head, part=part, sequence=sequence, warp=warp, lane=lane)
            block.run(sums, states, rotates=rotates)

    def merge(self, sums: Buffer, states: Buffer) -> None:
        """Adds up the parts of a head, each by its weight."""
        lanes = self.head_dim // 4
        parts = self.parts
        with (
            T.thread_binding(0, self.heads, thread="blockIdx.x") as head,
            T.thread_binding(0, self.batch, thread="blockIdx.y") as sequence,
            T.thread_binding(0, _SLOTS * lanes, thread="threadIdx.x") as thread,
        ):
            slot, place = T.bind(tirx.floordiv(thread, lanes)), T.bind(tirx.floormod(thread, lanes) * 4)
            mine = T.bind(tirx.floormod(thread, _WARP))
            largest = _kept(T.if_then_else(mine < parts, states[sequence, head, mine, 0], T.float32(_HIDDEN)))
            denominator = _kept(T.if_then_else(mine < parts, states[sequence, head, mine, 1], T.float32(0)))
            most = _over_lanes(largest, T.max, (16, 8, 4, 2, 1))
            weight = _kept(tirx.exp2(largest - most))
            total = _over_lanes(denominator * weight, tirx.Add, (16, 8, 4, 2, 1))
            weight = _kept(weight * _inverse(total))
            result = T.alloc_buffer((4,), "float32", scope="local")
            gpu.fill(result, T.float32(0), 4)
            with gpu.unrolled(_MOST_PARTS // _SLOTS) as turn:
                number = turn * _SLOTS + slot
                factor = _kept(_from_lane(weight, number))
                with gpu.when(number < parts), gpu.unrolled(4) as d:
                    store(result, result[d] + sums[sequence, head, number, place + d] * factor, d)
            shared = T.alloc_buffer((_SLOTS, self.head_dim), "float32", scope="shared")
            with gpu.unrolled(4) as d:
                store(shared, result[d], slot, place + d)
            gpu.synchronize()
            with gpu.when(thread < self.head_dim):
                value = gpu.total(_SLOTS, lambda slot: shared[slot, thread])
                store(self.output, T.Cast("float16", value), sequence, head, thread)
            with gpu.when(thread == 0):
                store(self.logarithms, _logarithm(most, total), sequence, head)


class _Block:
    """What one thread does; `row` and `column` are g and t above."""

    def __init__(
        self,
        call: _Call,
        *,
        head: Expression,
        part: Expression,
        sequence: Expression,
        warp: Expression,
        lane: Expression,
    ) -> None:
        self.call = call
        self.part, self.sequence, self.warp, self.lane = part, sequence, warp, lane
        self.row, self.column = T.bind(tirx.floordiv(lane, 4)), T.bind(tirx.floormod(lane, 4))
        self.key_head = T.bind(tirx.floordiv(head, call.tiles))
        tile = tirx.floormod(head, call.tiles) * HEADS
        self.first_head = T.bind(self.key_head * call.group + tile)
        self.count = T.min(call.group - tile, HEADS) if call.group % HEADS else HEADS
        # In registers, of which TVM supposes nothing: it would carry what it knows of a bound variable everywhere.
        self.first_page = register("int32", call.page_starts[sequence])[0]
        self.length = register("int32", self._length(call.page_starts[sequence + 1]))[0]
        # Registers, of two halves each, that a thread has of a query or key.
        self.registers = call.head_dim // 8

    def _length(self, end: Expression) -> Expression:
        call, sequence = self.call, self.sequence
        whole = (end - self.first_page - 1) * call.page_size
        if call.sliding_window:
            last, offset, sink = (call.lengths[row, sequence] for row in range(3))
            used = whole + last - offset + sink
        else:
            used = whole + call.lengths[sequence]
        return T.if_then_else(self.first_page != end, used, 0)

    def run(self, sums: Buffer, states: Buffer, *, rotates: bool) -> None:
        call, warps = self.call, self.call.shape.warps
        query = T.alloc_buffer((self.registers,), "uint32", scope="local")
        keys = T.alloc_buffer((2, self.registers), "uint32", scope="local")
        values = T.alloc_buffer((4, call.head_dim // 16), "uint32", scope="local")
        result = T.alloc_buffer((call.head_dim // 16, 4), "float32", scope="local")
        state = T.alloc_buffer((2,), "float32", scope="local")  # the largest score; the sum of weights of this thread
        rotation = _Rotation.of(self) if rotates else None
        self.read_query(query, rotation)
        with gpu.unrolled(call.head_dim // 16) as tile:
            _fill_row(result, tile)
        store(state, T.float32(_NO_SCORE), 0)
        store(state, T.float32(0), 1)
        # Every block has a whole number of steps of all its warps.
        step = TOKENS * warps
        all_steps = tirx.floordiv(self.length + (step - 1), step)
        steps = register("int32", tirx.floordiv(all_steps + call.parts - 1, call.parts))[0]
        first = register("int32", (self.part * steps * warps + self.warp) * TOKENS)[0]
        left = register("int32", T.min(tirx.floordiv(self.length - first + (step - 1), step), steps))[0]
        with T.serial(0, T.max(left, 0)) as turn:
            token = T.bind(first + turn * step)
            self.read(token, keys, values)
            if rotation is not None:
                with gpu.unrolled(2) as half:
                    rotation.turn_key(keys, half, T.min(token + half * 8 + self.row, self.length - 1))
            weights = self.weigh(token, query, keys, state, result)
            self.add_values(values, weights, result)
        self.finish(state, result, sums, states)

    def width(self) -> int:
        """How many halves of a query or key are next to each other in a thread, so that the place that each is rotated
        with is in the same thread."""
        return next(width for width in (8, 4, 2) if self.call.head_dim % (8 * width) == 0)

    def place(self, number: Expression, width: int) -> Expression:
        """Where the thread's `number`-th piece of a query or key begins."""
        return (number * 4 + self.column) * width

    def read_query(self, query: Buffer, rotation: _Rotation | None) -> None:
        width = self.width()
        head = self.first_head + (T.min(self.row, self.count - 1))
        with gpu.unrolled(self.call.head_dim // (4 * width)) as number:
            source = gpu.at(self.call.queries, self.sequence, head, self.place(number, width))
            _load(gpu.at(query, number * (width // 2)), source, width)
        if rotation is not None:
            rotation.turn_query(query)

    def read(self, token: Expression, keys: Buffer, values: Buffer) -> None:
        """Asks for all keys and values of a step."""
        call, width = self.call, self.width()
        locate = self.locate(token)
        with gpu.unrolled(2) as half:
            page, inside = locate(half * 8 + self.row)
            with gpu.unrolled(call.head_dim // (4 * width)) as number:
                source = gpu.at(call.pages, page, 0, self.key_head, inside, self.place(number, width))
                _load(gpu.at(keys, half, number * (width // 2)), source, width)
        with gpu.unrolled(4) as number:
            page, inside = locate(tirx.floordiv(number, 2) * 8 + self.column * 2 + tirx.floormod(number, 2))
            for begin, size in _segments(call.head_dim):
                source = gpu.at(call.pages, page, 1, self.key_head, inside, begin + self.row * size)
                _load(gpu.at(values, number, begin // 16), source, size)

    def locate(self, first: Expression) -> Callable[[Expression], tuple[Expression, Expression]]:
        """Page and place in it of the token `first` + i; behind the last token, of the last one."""
        call, last = self.call, self.length - 1

        def page_of(place: Expression) -> Expression:
            return T.bind(T.Cast("int64", call.page_numbers[self.first_page + tirx.floordiv(place, call.page_size)]))

        if not call.sliding_window and call.page_size % TOKENS == 0:
            page, inside = page_of(first), T.bind(tirx.floormod(first, call.page_size))
            return lambda i: (page, T.bind(inside + T.min(i, last - first)))

        def locate_one(i: Expression) -> tuple[Expression, Expression]:
            place = T.bind(T.min(first + i, last))
            if call.sliding_window:
                offset, sink = (call.lengths[row, self.sequence] for row in (1, 2))
                place = T.bind(T.if_then_else(place < sink, place, place - sink + offset))
            return page_of(place), T.bind(tirx.floormod(place, call.page_size))

        return locate_one

    def weigh(self, token: Expression, query: Buffer, keys: Buffer, state: Buffer, result: Buffer) -> Buffer:
        """The weights of head g and tokens (2t, 2t + 1), (2t + 8, 2t + 9), as halves."""
        call = self.call
        scores = T.alloc_buffer((2, 4), "float32", scope="local")
        none = T.uint32(0)
        with gpu.unrolled(2) as half:
            _fill_row(scores, half)
            with gpu.unrolled(self.registers // 2) as k:
                a = (query[2 * k], none, query[2 * k + 1], none)
                gpu.multiply_accumulate(gpu.at(scores, half, 0), a, (keys[half, 2 * k], keys[half, 2 * k + 1]))
        before = _kept(state[0])
        with gpu.unrolled(2) as half, gpu.unrolled(2) as i:
            place = token + half * 8 + self.column * 2 + i
            seen = place < self.length
            if call.window is not None:
                query_position = call.query_positions[self.sequence]
                key = call.key_positions[self.sequence] + place
                seen = tirx.And(seen, sees(call.window, query=query_position, key=key))
            score = scores[half, i] * (call.scale * T.float32(math.log2(math.e)))
            store(scores, T.if_then_else(seen, score, T.float32(_HIDDEN)), half, i)
        largest = T.max(T.max(scores[0, 0], scores[0, 1]), T.max(scores[1, 0], scores[1, 1]))
        largest = _kept(T.max(before, _over_lanes(largest, T.max, (1, 2))))
        fading = _kept(tirx.exp2(before - largest))
        store(state, largest, 0)
        store(state, state[1] * fading, 1)
        weights = T.alloc_buffer((2,), "uint32", scope="local")
        with gpu.unrolled(2) as half:
            first, second = (_kept(tirx.exp2(scores[half, i] - largest)) for i in range(2))
            store(state, state[1] + (first + second), 1)
            store(weights, _packed(first, second), half)
        # The results of this thread are those of heads 2t and 2t + 1.
        factors = [_kept(_from_lane(fading, (self.column * 2 + i) * 4)) for i in range(2)]
        with gpu.unrolled(call.head_dim // 16) as tile, gpu.unrolled(2) as row:
            for i in range(2):
                store(result, result[tile, row * 2 + i] * factors[i], tile, row * 2 + i)
        return weights

    def add_values(self, values: Buffer, weights: Buffer, result: Buffer) -> None:
        with gpu.unrolled(self.call.head_dim // 16) as tile:
            pairs = []
            for half in range(2):
                first, second = values[2 * half, tile], values[2 * half + 1, tile]
                pairs.append(T.bind((first & T.uint32(0xFFFF)) | (second << T.uint32(16))))
                pairs.append(T.bind((first >> T.uint32(16)) | (second & T.uint32(0xFFFF0000))))
            gpu.multiply_accumulate(gpu.at(result, tile, 0), tuple(pairs), (weights[0], weights[1]))

    def finish(self, state: Buffer, result: Buffer, sums: Buffer, states: Buffer) -> None:
        """Adds up what warps have, and stores it."""
        call, warps = self.call, self.call.shape.warps
        # Rows are one longer, for threads to write to different banks.
        shared = T.alloc_buffer((warps, HEADS, call.head_dim + 1), "float32", scope="shared")
        shared_states = T.alloc_buffer((warps, HEADS, 2), "float32", scope="shared")
        own = _over_lanes(state[1], tirx.Add, (1, 2))
        with gpu.when(self.column == 0):
            store(shared_states, state[0], self.warp, self.row, 0)
            store(shared_states, own, self.warp, self.row, 1)
        for begin, size in _segments(call.head_dim):
            with gpu.unrolled(size // 2) as number, gpu.unrolled(2) as d, gpu.unrolled(2) as i:
                value = result[begin // 16 + number, d * 2 + i]
                place = begin + self.row * size + number * 2 + d
                store(shared, value, self.warp, self.column * 2 + i, place)
        gpu.synchronize()
        heads = min(call.group, HEADS)
        threads = warps * _WARP
        with gpu.unrolled(-(-heads * call.head_dim // threads)) as turn:
            number = T.bind(turn * threads + self.warp * _WARP + self.lane)
            head, d = T.bind(tirx.floordiv(number, call.head_dim)), T.bind(tirx.floormod(number, call.head_dim))
            with gpu.when(head < self.count):
                self.store_head(shared, shared_states, head, d, sums, states)

    def store_head(
        self, shared: Buffer, shared_states: Buffer, head: Expression, d: Expression, sums: Buffer, states: Buffer
    ) -> None:
        call, warps = self.call, self.call.shape.warps
        most = _kept(_fold(T.max, [shared_states[warp, head, 0] for warp in range(warps)]))
        weights = [_kept(tirx.exp2(shared_states[warp, head, 0] - most)) for warp in range(warps)]
        total = _kept(_fold(tirx.Add, [weights[warp] * shared_states[warp, head, 1] for warp in range(warps)]))
        value = _kept(_fold(tirx.Add, [weights[warp] * shared[warp, head, d] for warp in range(warps)]))
        index = T.bind(self.first_head + head)
        with T.If(call.parts > 1):
            with T.Then():
                store(sums, value, self.sequence, index, self.part, d)
                with gpu.when(d == 0):
                    store(states, most, self.sequence, index, self.part, 0)
                    store(states, total, self.sequence, index, self.part, 1)
            with T.Else():
                store(call.output, T.Cast("float16", value * _inverse(total)), self.sequence, index, d)
                with gpu.when(d == 0):
                    store(call.logarithms, _logarithm(most, total), self.sequence, index)


@dataclass(frozen=True, kw_only=True)
class _Rotation:
    """Turns what a thread has of queries and keys. `frequencies` are the angles a unit of position, for the places of
    the first half of a head that the thread has."""

    frequencies: Buffer
    position_scale: Expression
    first_position: Expression
    window: SlidingWindow | None
    query_position: Expression

    @staticmethod
    def of(block: _Block) -> _Rotation:
        call, width = block.call, block.width()
        half = call.head_dim // 2
        frequencies = T.alloc_buffer((half // 4,), "float32", scope="local")
        with gpu.unrolled(half // (4 * width)) as number, gpu.unrolled(width) as i:
            d = T.bind(block.place(number, width) + i)
            value = angle(T.float32(1), d, head_dim=2 * half, theta=call.theta, rope_scaling=call.rope_scaling)
            store(frequencies, value, number * width + i)
        first = T.bind(call.key_positions[block.sequence])
        return _Rotation(
            frequencies=frequencies,
            position_scale=call.position_scale,
            first_position=first,
            window=call.window,
            query_position=call.query_positions[block.sequence],
        )

    def turn_query(self, query: Buffer) -> None:
        self._turn(query, (), self.query_position)

    def turn_key(self, keys: Buffer, row: Expression, token: Expression) -> None:
        position = self.first_position + token
        if self.window is not None:
            position = sink_turned(self.window, query=self.query_position, key=position)
        self._turn(keys, (row,), position)

    def _turn(self, buffer: Buffer, row: tuple[Expression, ...], position: Expression) -> None:
        count = int(self.frequencies.shape[0]) // 2  # registers of each half of the head
        # In memory, of which TVM supposes nothing: it takes bounds of a bound variable for those of an integer.
        scaled = register("float32", T.Cast("float32", position) * self.position_scale)
        with gpu.unrolled(count) as number:
            low, high = T.bind(buffer[(*row, number)]), T.bind(buffer[(*row, number + count)])
            turned = []
            for i, part in enumerate((gpu.low_half, gpu.high_half)):
                turn = scaled[0] * self.frequencies[number * 2 + i]
                cosine, sine = _kept(tirx.cos(turn)), _kept(tirx.sin(turn))
                x, y = _kept(part(low)), _kept(part(high))
                turned.append((x * cosine - y * sine, y * cosine + x * sine))
            store(buffer, _packed(turned[0][0], turned[1][0]), *row, number)
            store(buffer, _packed(turned[0][1], turned[1][1]), *row, number + count)


def _segments(head_dim: int) -> list[tuple[int, int]]:
    """How eight threads share the places of a value: (begin, halves of a thread next to each other) of each segment."""
    segments, begin = [], 0
    for size in (8, 4, 2):
        while head_dim - begin >= 8 * size:
            segments.append((begin, size))
            begin += 8 * size
    return segments


def _load(to: Expression, source: Expression, halves: int) -> None:
    """Copies 8, 4 or 2 halves of global memory into registers."""
    {8: gpu.load_once, 4: gpu.load8, 2: gpu.load4}[halves](to, source)


def _kept(value: Expression) -> Expression:
    """A float in a register. TVM writes out what is bound to a variable wherever that is used."""
    return register("float32", value)[0]


def _fill_row(buffer: Buffer, row: Expression) -> None:
    with gpu.unrolled(4) as place:
        store(buffer, T.float32(0), row, place)


def _packed(first: Expression, second: Expression) -> Expression:
    """Two floats as halves in a register."""
    low, high = (T.Cast("uint32", T.reinterpret("uint16", T.Cast("float16", value))) for value in (first, second))
    return low | (high << T.uint32(16))


def _over_lanes(
    value: Expression, combine: Callable[[Expression, Expression], Expression], masks: tuple[int, ...]
) -> Expression:
    """The values of all threads of a warp whose numbers differ in bits of the masks, combined."""
    for mask in masks:
        value = _kept(value)
        value = combine(value, gpu.from_lane_xor(value, mask))
    return _kept(value)


def _from_lane(value: Expression, lane: Expression) -> Expression:
    """The value of the thread of the warp of number `lane`."""
    return T.tvm_warp_shuffle(T.uint32(0xFFFFFFFF), value, lane, 32, 32)


def _fold(combine: Callable[[Expression, Expression], Expression], values: list[Expression]) -> Expression:
    result = values[0]
    for value in values[1:]:
        result = combine(result, value)
    return result


def _inverse(total: Expression) -> Expression:
    """1 / total; 0 where there are no keys."""
    return T.if_then_else(total > T.float32(0), T.float32(1) / total, T.float32(0))


def _logarithm(most: Expression, total: Expression) -> Expression:
    return most + T.if_then_else(total > T.float32(0), tirx.log2(total), T.float32(0))
