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

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda import architectures
from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels.attention_block import HIDDEN, WARP, Block, Call, DecodeShape
from mlcbuild.compiler.backends.cuda.kernels.attention_registers import from_lane, inverse, kept, logarithm, over_lanes
from mlcbuild.compiler.backends.cuda.kernels.attention_rules import with_sinks_of_decode
from mlcbuild.compiler.kernels.building import Buffer, Expression, replace_body, statement, store
from mlcbuild.compiler.kernels.measured_inputs import decode_inputs
from mlcbuild.compiler.kernels.rotary import supports
from mlcbuild.compiler.kernels.shapes import ShapedRule, Written, written_by, written_of
from mlcbuild.compiler.models.architecture.attention_rules import NO_RULES, AttentionRules
from mlcbuild.compiler.models.architecture.window import SlidingWindow

_RULE = "cuda.paged_decode"
_MOST_PARTS = WARP  # blocks of a sequence: the threads of a warp weigh one each
_SLOTS = 8  # threads of a place, as parts are merged
_SHORT_WARPS = 8  # of a block that has a short sequence alone


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
    rules: AttentionRules = NO_RULES,
    shape: DecodeShape | None = None,
) -> tirx.PrimFunc:
    """One query token for each sequence. `original` is TVM's kernel, whose parameters are kept.

    `sliding_window` says that a sequence in the cache may have lost tokens; `window` is what a query sees of it.
    `rules` are those of all layers.
    """
    call = _Host(
        original,
        shape or DecodeShape(),
        sliding_window=sliding_window,
        window=window,
        rules=rules,
        rope_scaling=rope_scaling,
    )
    made = replace_body(original, statement(call.run))
    if rules.sinks:
        return with_sinks_of_decode(made)
    if sliding_window or window is not None:
        return made
    return written_by(_RULE, made, rope_scaling=dict(rope_scaling), rules=asdict(rules))


def _rewrite(written: Written, shape: DecodeShape) -> tirx.PrimFunc:
    rules = AttentionRules(**written.given["rules"])
    return paged_decode(written.func, rope_scaling=written.given["rope_scaling"], rules=rules, shape=shape)


tune_paged_decode = ShapedRule(
    name=_RULE,
    shape=DecodeShape,
    values={
        "warps": (1, 2, 4, 8),
        "blocks": (132, 264, 396, 528, 792),
        "tokens": (32, 64, 128),
        "alone": (64, 256),
        "short": (256,),  # no size that is measured is that short
    },
    match=written_of(_RULE),
    default=lambda _: DecodeShape(),
    build=_rewrite,
    inputs=lambda written: decode_inputs(written.func),
    version=2,
)


class _Host(Call):
    """What the host does: it starts one kernel or two."""

    def run(self) -> None:
        # The sizes are written out: TVM moves allocations before everything else.
        sums = T.alloc_buffer((self.batch, self.heads, self._parts(), self.head_dim), "float32")
        states = T.alloc_buffer((self.batch, self.heads, self._parts(), 2), "float32")
        if not self.shape.short:
            self.share(sums, states)
            return
        with T.If(self._is_short()):
            with T.Then():
                self._alone().attend(sums, states, rotates=False)
            with T.Else():
                self.share(sums, states)

    def share(self, sums: Buffer, states: Buffer) -> None:
        """Starts the blocks, and what merges those of one sequence."""
        self.parts = T.bind(self._parts())
        with T.If(self.mode == 1):
            with T.Then():
                self.attend(sums, states, rotates=True)
            with T.Else():
                self.attend(sums, states, rotates=False)
        with gpu.when(self.parts > 1):
            self.merge(sums, states)

    def _is_short(self) -> Expression:
        """Whether sequences are so short and few that to merge parts of them would take longer than to compute them."""
        blocks = self.batch * (self.key_heads * self.tiles)
        few = blocks <= architectures.MULTIPROCESSORS
        return tirx.all(self.mode == 0, few, self._tokens() <= self.shape.short)

    def _alone(self) -> _Host:
        """The same call, with one block of many warps for each sequence and key-value head."""
        made = copy.copy(self)
        made.shape = dataclasses.replace(self.shape, warps=_SHORT_WARPS)
        made.parts = T.int32(1)
        return made

    def _tokens(self) -> Expression:
        """Of a sequence, on average, in whole pages."""
        return tirx.floordiv(self.page_numbers.shape[0] * self.page_size, T.max(self.batch, 1))

    def _parts(self) -> Expression:
        """How many blocks share a sequence, whose length is taken to be the average of all."""
        batch, tokens = T.max(self.batch, 1), self._tokens()
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
            T.thread_binding(0, WARP, thread="threadIdx.x") as lane,
        ):
            block = Block(self, head=head, part=part, sequence=sequence, warp=warp, lane=lane)
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
            mine = T.bind(tirx.floormod(thread, WARP))
            largest = kept(T.if_then_else(mine < parts, states[sequence, head, mine, 0], T.float32(HIDDEN)))
            denominator = kept(T.if_then_else(mine < parts, states[sequence, head, mine, 1], T.float32(0)))
            most = over_lanes(largest, T.max, (16, 8, 4, 2, 1))
            weight = kept(tirx.exp2(largest - most))
            total = over_lanes(denominator * weight, tirx.Add, (16, 8, 4, 2, 1))
            weight = kept(weight * inverse(total))
            result = T.alloc_buffer((4,), "float32", scope="local")
            gpu.fill(result, T.float32(0), 4)
            with gpu.unrolled(_MOST_PARTS // _SLOTS) as turn:
                number = turn * _SLOTS + slot
                factor = kept(from_lane(weight, number))
                with gpu.when(number < parts), gpu.unrolled(4) as d:
                    store(result, result[d] + sums[sequence, head, number, place + d] * factor, d)
            shared = T.alloc_buffer((_SLOTS, self.head_dim), "float32", scope="shared")
            with gpu.unrolled(4) as d:
                store(shared, result[d], slot, place + d)
            with gpu.when(self.batch == 1):
                gpu.let_next_begin()
            gpu.synchronize()
            with gpu.when(thread < self.head_dim):
                value = gpu.total(_SLOTS, lambda slot: shared[slot, thread])
                store(self.output, T.Cast("float16", value), sequence, head, thread)
            with gpu.when(thread == 0):
                store(self.logarithms, logarithm(most, total), sequence, head)
