"""What a block of threads of the attention kernel does: `attention` says how its threads share the work."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels.attention_registers import (
    fill_row,
    fold,
    from_lane,
    inverse,
    kept,
    load,
    logarithm,
    over_lanes,
    packed,
    segments,
)
from mlcbuild.compiler.backends.cuda.kernels.attention_rules import capped, sees_in_layer
from mlcbuild.compiler.backends.cuda.kernels.launching import register
from mlcbuild.compiler.backends.cuda.kernels.window import sees, sink_turned
from mlcbuild.compiler.kernels.building import Buffer, Expression, store
from mlcbuild.compiler.kernels.layer_rules import factor, oldest_seen, sees_less, slope
from mlcbuild.compiler.kernels.rotary import angle
from mlcbuild.compiler.models.architecture.attention_rules import AttentionRules
from mlcbuild.compiler.models.architecture.window import SlidingWindow

TOKENS = 16  # of a step of a warp
HEADS = 8  # of a block: the columns of a tensor core's result
WARP = 32
NO_SCORE = -5e4  # TVM's score where there are no keys
HIDDEN = -1e30  # what a token behind the last one scores


@dataclass(frozen=True, kw_only=True)
class DecodeShape:
    """How the work is shared: `warps` of a block; the number of `blocks` that are enough for a GPU, below which several
    share a sequence, if it has as many tokens as one block can have `alone`; `tokens` that a block of several has at
    least. Of few sequences of up to `short` tokens each has a block of eight warps, as merging would take longer than
    computing."""

    warps: int = 2
    blocks: int = 396
    tokens: int = 32
    alone: int = 64
    short: int = 256

    def __post_init__(self) -> None:
        if not 1 <= self.warps <= 16 or self.blocks < 1 or self.tokens < TOKENS or self.short < 0:
            raise ValueError(f"no way to share the work: {self}")


class Call:
    """The parameters of a call, and the sizes that are known as the kernel is built."""

    parts: Expression  # how many blocks share a sequence

    def __init__(
        self,
        original: tirx.PrimFunc,
        shape: DecodeShape,
        *,
        sliding_window: bool,
        window: SlidingWindow | None,
        rules: AttentionRules,
        rope_scaling: Mapping[str, Any],
    ) -> None:
        self.queries, self.pages, self.page_starts, self.page_numbers, self.lengths = original.params[:5]
        self.key_positions, self.query_positions, self.output, self.logarithms = original.params[5:9]
        self.mode, self.position_scale, self.theta, self.scale = original.params[9:]
        self.shape = shape
        self.sliding_window, self.window, self.rules = sliding_window, window, rules
        self.rope_scaling = rope_scaling
        self.batch = self.queries.shape[0]
        self.heads, self.head_dim = int(self.queries.shape[1]), int(self.queries.shape[2])
        self.key_heads, self.page_size = int(self.pages.shape[2]), int(self.pages.shape[3])
        self.stride = self.heads // self.key_heads  # heads of a key-value head, also one that holds scores of no key
        self.group = self.stride - 1 if rules.sinks else self.stride
        self.tiles = -(-self.group // HEADS)


class Block:
    """What one thread does; `row` and `column` are g and t above."""

    def __init__(
        self,
        call: Call,
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
        self.first_head = T.bind(self.key_head * call.stride + tile)
        self.count = T.min(call.group - tile, HEADS) if call.group % HEADS else HEADS
        if call.rules.alibi:
            own = self.first_head + T.min(self.row, self.count - 1)
            self.slope = kept(slope(own, call.heads) * T.float32(math.log2(math.e)))
        # In registers, of which TVM supposes nothing: it would carry what it knows of a bound variable everywhere.
        self.first_page = register("int32", call.page_starts[sequence])[0]
        self.length = register("int32", self._length(call.page_starts[sequence + 1]))[0]
        self.first_token = register("int32", self._first_seen())[0] if call.rules.window else T.int32(0)
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

    def _first_seen(self) -> Expression:
        """The number of a token that no query of this layer sees any before, as many steps from the first."""
        call = self.call
        oldest = oldest_seen(call.rules, call.query_positions[self.sequence]) - call.key_positions[self.sequence]
        whole = tirx.floordiv(T.max(T.min(oldest, self.length), 0), TOKENS) * TOKENS
        return T.if_then_else(sees_less(call.scale), whole, 0)

    def run(self, sums: Buffer, states: Buffer, *, rotates: bool) -> None:
        call, warps = self.call, self.call.shape.warps
        query = T.alloc_buffer((self.registers,), "uint32", scope="local")
        keys = T.alloc_buffer((2, self.registers), "uint32", scope="local")
        values = T.alloc_buffer((4, call.head_dim // 16), "uint32", scope="local")
        result = T.alloc_buffer((call.head_dim // 16, 4), "float32", scope="local")
        state = T.alloc_buffer((2,), "float32", scope="local")  # the largest score; the sum of weights of this thread
        rotation = Rotation.of(self) if rotates else None
        self.read_query(query, rotation)
        with gpu.unrolled(call.head_dim // 16) as tile:
            fill_row(result, tile)
        store(state, T.float32(NO_SCORE), 0)
        store(state, T.float32(0), 1)
        # Every block has a whole number of steps of all its warps.
        step = TOKENS * warps
        length = self.length - self.first_token if call.rules.window else self.length
        all_steps = tirx.floordiv(length + (step - 1), step)
        steps = register("int32", tirx.floordiv(all_steps + call.parts - 1, call.parts))[0]
        begin = (self.part * steps * warps + self.warp) * TOKENS
        first = register("int32", begin + self.first_token if call.rules.window else begin)[0]
        left = register("int32", T.min(tirx.floordiv(self.length - first + (step - 1), step), steps))[0]
        with T.serial(0, T.max(left, 0)) as turn:
            token = T.bind(first + turn * step)
            self.read(token, keys, values)
            if rotation is not None:
                with gpu.unrolled(2) as half:
                    rotation.turn_key(keys, half, T.min(token + half * 8 + self.row, self.length - 1))
            weights = self.weigh(token, query, keys, state, result)
            self.add_values(values, weights, result)
        with gpu.when(call.batch == 1):
            gpu.let_next_begin()
        self.finish(state, result, sums, states)

    def width(self) -> int:
        """How many halves of a query or key are next to each other in a thread, so that the place that each is rotated
        with is in the same thread."""
        return next(width for width in (8, 4, 2) if self.call.head_dim % (8 * width) == 0)

    def place(self, number: Expression, width: int) -> Expression:
        """Where the thread's `number`-th piece of a query or key begins."""
        return (number * 4 + self.column) * width

    def read_query(self, query: Buffer, rotation: Rotation | None) -> None:
        width = self.width()
        head = self.first_head + (T.min(self.row, self.count - 1))
        with gpu.unrolled(self.call.head_dim // (4 * width)) as number:
            source = gpu.at(self.call.queries, self.sequence, head, self.place(number, width))
            load(gpu.at(query, number * (width // 2)), source, width)
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
                load(gpu.at(keys, half, number * (width // 2)), source, width)
        with gpu.unrolled(4) as number:
            page, inside = locate(tirx.floordiv(number, 2) * 8 + self.column * 2 + tirx.floormod(number, 2))
            for begin, size in segments(call.head_dim):
                source = gpu.at(call.pages, page, 1, self.key_head, inside, begin + self.row * size)
                load(gpu.at(values, number, begin // 16), source, size)

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
            fill_row(scores, half)
            with gpu.unrolled(self.registers // 2) as k:
                a = (query[2 * k], none, query[2 * k + 1], none)
                gpu.multiply_accumulate(gpu.at(scores, half, 0), a, (keys[half, 2 * k], keys[half, 2 * k + 1]))
        before = kept(state[0])
        with gpu.unrolled(2) as half, gpu.unrolled(2) as i:
            place = token + half * 8 + self.column * 2 + i
            seen = place < self.length
            if call.window is not None:
                query_position = call.query_positions[self.sequence]
                key = call.key_positions[self.sequence] + place
                seen = tirx.And(seen, sees(call.window, query=query_position, key=key))
            if call.rules.window:
                query_position = call.query_positions[self.sequence]
                key = call.key_positions[self.sequence] + place
                seen = tirx.And(seen, sees_in_layer(call.rules, call.scale, query=query_position, key=key))
            score = scores[half, i] * (factor(call.scale, call.rules) * T.float32(math.log2(math.e)))
            if call.rules.soft_cap:
                score = capped(score, call.rules.soft_cap)
            if call.rules.alibi:
                ahead = call.key_positions[self.sequence] + place - call.query_positions[self.sequence]
                score = score + self.slope * T.Cast("float32", ahead)
            store(scores, T.if_then_else(seen, score, T.float32(HIDDEN)), half, i)
        largest = T.max(T.max(scores[0, 0], scores[0, 1]), T.max(scores[1, 0], scores[1, 1]))
        largest = kept(T.max(before, over_lanes(largest, T.max, (1, 2))))
        fading = kept(tirx.exp2(before - largest))
        store(state, largest, 0)
        store(state, state[1] * fading, 1)
        weights = T.alloc_buffer((2,), "uint32", scope="local")
        with gpu.unrolled(2) as half:
            first, second = (kept(tirx.exp2(scores[half, i] - largest)) for i in range(2))
            store(state, state[1] + (first + second), 1)
            store(weights, packed(first, second), half)
        # The results of this thread are those of heads 2t and 2t + 1.
        factors = [kept(from_lane(fading, (self.column * 2 + i) * 4)) for i in range(2)]
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
        own = over_lanes(state[1], tirx.Add, (1, 2))
        with gpu.when(self.column == 0):
            store(shared_states, state[0], self.warp, self.row, 0)
            store(shared_states, own, self.warp, self.row, 1)
        for begin, size in segments(call.head_dim):
            with gpu.unrolled(size // 2) as number, gpu.unrolled(2) as d, gpu.unrolled(2) as i:
                value = result[begin // 16 + number, d * 2 + i]
                place = begin + self.row * size + number * 2 + d
                store(shared, value, self.warp, self.column * 2 + i, place)
        gpu.synchronize()
        heads = min(call.group, HEADS)
        threads = warps * WARP
        with gpu.unrolled(-(-heads * call.head_dim // threads)) as turn:
            number = T.bind(turn * threads + self.warp * WARP + self.lane)
            head, d = T.bind(tirx.floordiv(number, call.head_dim)), T.bind(tirx.floormod(number, call.head_dim))
            with gpu.when(head < self.count):
                self.store_head(shared, shared_states, head, d, sums, states)

    def store_head(
        self, shared: Buffer, shared_states: Buffer, head: Expression, d: Expression, sums: Buffer, states: Buffer
    ) -> None:
        call, warps = self.call, self.call.shape.warps
        most = kept(fold(T.max, [shared_states[warp, head, 0] for warp in range(warps)]))
        weights = [kept(tirx.exp2(shared_states[warp, head, 0] - most)) for warp in range(warps)]
        total = kept(fold(tirx.Add, [weights[warp] * shared_states[warp, head, 1] for warp in range(warps)]))
        value = kept(fold(tirx.Add, [weights[warp] * shared[warp, head, d] for warp in range(warps)]))
        index = T.bind(self.first_head + head)
        with T.If(call.parts > 1):
            with T.Then():
                store(sums, value, self.sequence, index, self.part, d)
                with gpu.when(d == 0):
                    store(states, most, self.sequence, index, self.part, 0)
                    store(states, total, self.sequence, index, self.part, 1)
            with T.Else():
                store(call.output, T.Cast("float16", value * inverse(total)), self.sequence, index, d)
                with gpu.when(d == 0):
                    store(call.logarithms, logarithm(most, total), self.sequence, index)


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """Turns what a thread has of queries and keys. `frequencies` are the angles a unit of position, for the places of
    the first half of a head that the thread has."""

    frequencies: Buffer
    position_scale: Expression
    first_position: Expression
    window: SlidingWindow | None
    query_position: Expression

    @staticmethod
    def of(block: Block) -> Rotation:
        call, width = block.call, block.width()
        half = call.head_dim // 2
        frequencies = T.alloc_buffer((half // 4,), "float32", scope="local")
        with gpu.unrolled(half // (4 * width)) as number, gpu.unrolled(width) as i:
            d = T.bind(block.place(number, width) + i)
            value = angle(T.float32(1), d, head_dim=2 * half, theta=call.theta, rope_scaling=call.rope_scaling)
            store(frequencies, value, number * width + i)
        first = T.bind(call.key_positions[block.sequence])
        return Rotation(
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
                cosine, sine = kept(tirx.cos(turn)), kept(tirx.sin(turn))
                x, y = kept(part(low)), kept(part(high))
                turned.append((x * cosine - y * sine, y * cosine + x * sine))
            store(buffer, packed(turned[0][0], turned[1][0]), *row, number)
            store(buffer, packed(turned[0][1], turned[1][1]), *row, number + count)
