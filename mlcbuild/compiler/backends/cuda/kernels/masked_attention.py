"""Attention of padded texts (`layers.masked_attention`) on GPUs.

A block has a head of a text and 32 of its queries; each of its warps has four, or two where heads are large. Keys and
values come 32 at a time, in float32, through shared memory. Each thread has one of the keys: its scores with the warp's
queries need nobody else. A running maximum and sum of each query (Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018) fit the results so far to the next keys. Of the results each thread has every 32nd
place.
"""

from __future__ import annotations

import math

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels.attention_registers import from_lane, kept, over_lanes
from mlcbuild.compiler.backends.cuda.kernels.launching import WARP, Threads, kernel
from mlcbuild.compiler.kernels.building import Buffer, Expression, store
from mlcbuild.errors import StageError

_WARPS = 8
_HIDDEN = -1e30  # the score of a key that is not seen
_LEAST = -5e4  # less than any score: what is subtracted from scores is never a hidden one's
_LARGE = 64  # a head's size above which a warp has fewer queries: shared memory is 48 KiB


def masked_attention(heads: int, head_dim: int, dtype: str) -> tirx.PrimFunc:
    """The kernel for heads of that size and number, scheduled for good. Raises StageError for too large ones."""
    if head_dim > 2 * _LARGE:
        raise StageError(f"there are no CUDA kernels for encoders whose heads have {head_dim} elements, more than 128")
    tokens, texts, length = (tirx.Var(name, "int64") for name in ("tokens", "texts", "length"))
    qkv = tirx.decl_buffer((tokens, 3 * heads, head_dim), dtype, name="qkv")
    mask = tirx.decl_buffer((texts, length), "int32", name="mask")
    output = tirx.decl_buffer((tokens, heads, head_dim), dtype, name="output")
    each = 4 if head_dim <= _LARGE else 2
    call = _Call(qkv=qkv, mask=mask, output=output, heads=heads, head_dim=head_dim, each=each)
    grid = (tirx.ceildiv(length, each * _WARPS), texts * heads)
    return kernel([qkv, mask, output], call.run, grid=grid, warps=_WARPS)


class _Call:
    """What a thread does: of each warp's queries, its keys and its places of results."""

    def __init__(self, *, qkv: Buffer, mask: Buffer, output: Buffer, heads: int, head_dim: int, each: int) -> None:
        self.qkv, self.mask, self.output = qkv, mask, output
        self.heads, self.head_dim, self.each = heads, head_dim, each
        self.length = mask.shape[1]
        self.places = -(-head_dim // WARP)  # of a result, of a thread

    def run(self, threads: Threads) -> None:
        each, head_dim = self.each, self.head_dim
        text, head = T.bind(tirx.floordiv(threads.y, self.heads)), T.bind(tirx.floormod(threads.y, self.heads))
        first = T.bind(threads.x * (each * _WARPS))
        # Rows of keys are one longer, for threads that read one place of all to meet no bank twice.
        keys = T.alloc_buffer((WARP, head_dim + 1), "float32", scope="shared")
        values = T.alloc_buffer((WARP, head_dim), "float32", scope="shared")
        queries = T.alloc_buffer((each * _WARPS, head_dim), "float32", scope="shared")
        scale = T.float32(math.log2(math.e) / math.sqrt(head_dim))
        self._fill(threads, text, head, first, queries, rows=each * _WARPS, scale=scale)
        results = T.alloc_buffer((each, self.places), "float32", scope="local")
        most = T.alloc_buffer((each,), "float32", scope="local")
        sums = T.alloc_buffer((each,), "float32", scope="local")
        with gpu.unrolled(each) as query:
            store(most, T.float32(_LEAST), query)
            store(sums, T.float32(0), query)
            with gpu.unrolled(self.places) as place:
                store(results, T.float32(0), query, place)
        with T.serial(0, tirx.ceildiv(self.length, WARP)) as step:
            begin = T.bind(step * WARP)
            gpu.synchronize()
            self._fill(threads, text, head + self.heads, begin, keys, rows=WARP)
            self._fill(threads, text, head + 2 * self.heads, begin, values, rows=WARP)
            gpu.synchronize()
            self._attend(threads, text, begin, queries, keys, values, (most, sums, results))
        self._write(threads, text, head, first, sums, results)

    def _fill(
        self,
        threads: Threads,
        text: Expression,
        head: Expression,
        first: Expression,
        shared: Buffer,
        *,
        rows: int,
        scale: Expression | None = None,
    ) -> None:
        """Rows of a head from a text's token `first` on; 0 behind the text's last."""
        total = rows * self.head_dim
        with gpu.unrolled(-(-total // threads.count)) as turn:
            number = T.bind(turn * threads.count + threads.number)
            row, d = T.bind(tirx.floordiv(number, self.head_dim)), T.bind(tirx.floormod(number, self.head_dim))
            with gpu.when(number < total):
                token = T.bind(T.min(first + row, self.length - 1))
                value = T.Cast("float32", self.qkv[text * self.length + token, head, d])
                value = value if scale is None else value * scale
                store(shared, T.if_then_else(first + row < self.length, value, T.float32(0)), row, d)

    def _attend(
        self,
        threads: Threads,
        text: Expression,
        begin: Expression,
        queries: Buffer,
        keys: Buffer,
        values: Buffer,
        state: tuple[Buffer, Buffer, Buffer],
    ) -> None:
        """The next 32 keys."""
        most, sums, results = state
        each, lane = self.each, threads.lane
        mine = T.bind(begin + lane)
        place = T.bind(T.min(mine, self.length - 1))
        seen = T.bind(tirx.And(mine < self.length, self.mask[text, place] != 0))
        scores = T.alloc_buffer((each,), "float32", scope="local")
        gpu.fill(scores, T.float32(0), each)
        with T.serial(0, self.head_dim) as d:
            key = kept(keys[lane, d])
            with gpu.unrolled(each) as query:
                store(scores, scores[query] + queries[threads.warp * each + query, d] * key, query)
        weights = T.alloc_buffer((each,), "float32", scope="local")
        with gpu.unrolled(each) as query:
            score = kept(T.if_then_else(seen, scores[query], T.float32(_HIDDEN)))
            largest = kept(T.max(most[query], over_lanes(score, T.max, (16, 8, 4, 2, 1))))
            fading = kept(tirx.exp2(most[query] - largest))
            weight = kept(tirx.exp2(score - largest))
            store(weights, weight, query)
            store(sums, sums[query] * fading + weight, query)
            store(most, largest, query)
            with gpu.unrolled(self.places) as number:
                store(results, results[query, number] * fading, query, number)
        with T.serial(0, WARP) as other, gpu.unrolled(self.places) as number:
            d = T.bind(T.min(number * WARP + lane, self.head_dim - 1))
            value = kept(values[other, d])
            with gpu.unrolled(each) as query:
                weight = from_lane(weights[query], other)
                store(results, results[query, number] + value * weight, query, number)

    def _write(
        self, threads: Threads, text: Expression, head: Expression, first: Expression, sums: Buffer, results: Buffer
    ) -> None:
        with gpu.unrolled(self.each) as query:
            total = kept(over_lanes(sums[query], tirx.Add, (16, 8, 4, 2, 1)))
            inverse = kept(T.if_then_else(total > T.float32(0), T.float32(1) / total, T.float32(0)))
            token = T.bind(first + threads.warp * self.each + query)
            with gpu.unrolled(self.places) as number:
                d = T.bind(number * WARP + threads.lane)
                with gpu.when(tirx.And(token < self.length, d < self.head_dim)):
                    value = T.Cast(str(self.output.dtype), results[query, number] * inverse)
                    store(self.output, value, text * self.length + token, head, d)
