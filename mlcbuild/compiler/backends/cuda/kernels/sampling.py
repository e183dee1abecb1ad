"""Kernels by which a serving engine samples tokens without bringing probabilities to the host.

All of them take rows of probabilities of a length that is known at run time. A row is gone along in chunks by one
block, which stops caring once it has found what it looks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels.launching import Threads, combined, kernel, register, summed
from mlcbuild.compiler.kernels.building import Buffer, Expression

_EACH = 8  # elements of a thread in a chunk
_WARPS = 32  # of a block that searches a row: threads meet once a chunk, so there are to be few chunks
PIVOTS = 3  # thresholds that `find_top_p_pivot` tries at once
_CLOSE = 1e-7  # thresholds that are as near as this count as equal
_NEGLIGIBLE = 1e-7  # a distribution with less probability than this is none
_LARGEST = 3.4028234663852886e38


def sample_by_number() -> tirx.PrimFunc:
    """(probabilities (b, v), numbers (n,) in [0, 1), rows (n,) int32) → tokens (n,) int32: the first token at which the
    sum of its row's probabilities exceeds the number."""
    batch, width, count = _sizes("batch_size", "vocab_size", "num_samples")
    probabilities = tirx.decl_buffer((batch, width), "float32", name="probabilities")
    numbers = tirx.decl_buffer((count,), "float32", name="numbers")
    rows = tirx.decl_buffer((count,), "int32", name="rows")
    tokens = tirx.decl_buffer((count,), "int32", name="tokens")

    def body(threads: Threads) -> None:
        found = _search(threads, probabilities, rows[threads.x], width, lambda total: total > numbers[threads.x])
        with gpu.when(threads.number == 0):
            T.buffer_store(tokens, found.place[0], [threads.x])

    return kernel([probabilities, numbers, rows, tokens], body, grid=(count, 1), warps=_WARPS)


def sample_top_p() -> tirx.PrimFunc:
    """(probabilities (b, v) in descending order, their tokens (b, v) int32, numbers (n,) in [0, 1), rows (n,) int32,
    top_p (b,)) → tokens (n,) int32. The fewest tokens that together have a probability of top_p are sampled from."""
    batch, width, count = _sizes("batch_size", "vocab_size", "num_samples")
    probabilities = tirx.decl_buffer((batch, width), "float32", name="probabilities")
    order = tirx.decl_buffer((batch, width), "int32", name="order")
    top_p = tirx.decl_buffer((batch,), "float32", name="top_p")
    numbers = tirx.decl_buffer((count,), "float32", name="numbers")
    rows = tirx.decl_buffer((count,), "int32", name="rows")
    tokens = tirx.decl_buffer((count,), "int32", name="tokens")

    def body(threads: Threads) -> None:
        row = T.bind(rows[threads.x])
        kept = _search(threads, probabilities, row, width, lambda total: total >= top_p[row])
        wanted = T.bind(numbers[threads.x] * kept.total[0])
        found = _search(threads, probabilities, row, width, lambda total: total > wanted)
        with gpu.when(threads.number == 0):
            place = tirx.min(found.place[0], kept.place[0])
            T.buffer_store(tokens, order[row, place], [threads.x])

    return kernel([probabilities, order, numbers, rows, top_p, tokens], body, grid=(count, 1), warps=_WARPS)


def find_top_p_pivot() -> tirx.PrimFunc:
    """(probabilities (b, v), top_p (b,), first thresholds (b, PIVOTS) in descending order) → a threshold (b,) such that
    the fewest tokens reach it that together have a probability of top_p, and that probability (b,)."""
    batch, width = _sizes("batch_size", "vocab_size")
    probabilities = tirx.decl_buffer((batch, width), "float32", name="probabilities")
    top_p = tirx.decl_buffer((batch,), "float32", name="top_p")
    first = tirx.decl_buffer((batch, PIVOTS), "float32", name="first")
    threshold = tirx.decl_buffer((batch,), "float32", name="threshold")
    kept = tirx.decl_buffer((batch,), "float32", name="kept")

    def body(threads: Threads) -> None:
        row = threads.x
        wanted = T.bind(top_p[row])
        # Enough reach `low`, too few reach `high`.
        low, high = register("float32", T.float32(0)), register("float32", T.float32(1))
        result = register("float32", T.float32(0))
        total = register("float32", T.float32(1))
        done = register("int32", T.int32(0))
        pivots = T.alloc_buffer((PIVOTS,), "float32", scope="local")
        with T.unroll(0, PIVOTS) as number:
            T.buffer_store(pivots, first[row, number], [number])
        with T.While(done[0] == 0):
            sums = T.alloc_buffer((PIVOTS,), "float32", scope="local")
            least = T.alloc_buffer((PIVOTS,), "float32", scope="local")
            often = T.alloc_buffer((PIVOTS,), "float32", scope="local")
            _weigh(threads, probabilities, row, width, pivots, sums, least, often)
            for number in range(PIVOTS):
                enough = sums[number] >= wanted
                tight = sums[number] - least[number] * often[number] < wanted
                with gpu.when(tirx.all(enough, pivots[number] >= low[0], done[0] == 0)):
                    T.buffer_store(low, pivots[number], [0])
                    T.buffer_store(result, pivots[number], [0])
                    T.buffer_store(total, sums[number], [0])
                    with gpu.when(tight):
                        T.buffer_store(done, T.int32(1), [0])
                with gpu.when(tirx.all(tirx.Not(enough), pivots[number] < high[0])):
                    T.buffer_store(high, pivots[number], [0])
            with gpu.when(high[0] - low[0] <= T.float32(_CLOSE)):
                T.buffer_store(done, T.int32(1), [0])
            with T.unroll(0, PIVOTS) as number:
                share = T.Cast("float32", number + 1) / T.float32(PIVOTS + 1)
                T.buffer_store(pivots, high[0] - (high[0] - low[0]) * share, [number])
        with gpu.when(threads.number == 0):
            T.buffer_store(threshold, result[0], [row])
            T.buffer_store(kept, total[0], [row])

    return kernel([probabilities, top_p, first, threshold, kept], body, grid=(batch, 1), warps=32)


def _weigh(
    threads: Threads,
    probabilities: Buffer,
    row: Expression,
    width: tirx.Var,
    pivots: Buffer,
    sums: Buffer,
    least: Buffer,
    often: Buffer,
) -> None:
    """Of the probabilities that reach each pivot: their sum, the least, and how often that is there."""
    for number in range(PIVOTS):
        T.buffer_store(sums, T.float32(0), [number])
        T.buffer_store(least, T.float32(_LARGEST), [number])
        T.buffer_store(often, T.float32(0), [number])
    with T.serial(0, tirx.ceildiv(width, threads.count)) as step:
        place = step * threads.count + threads.number
        with gpu.when(place < width):
            value = T.bind(probabilities[row, place])
            for number in range(PIVOTS):
                with gpu.when(value >= pivots[number]):
                    T.buffer_store(sums, sums[number] + value, [number])
                    same = tirx.if_then_else(value == least[number], often[number] + 1, often[number])
                    T.buffer_store(often, tirx.if_then_else(value < least[number], T.float32(1), same), [number])
                    T.buffer_store(least, tirx.min(least[number], value), [number])
    for number in range(PIVOTS):
        T.buffer_store(sums, summed(threads, sums[number]), [number])
        everywhere = T.bind(combined(threads, least[number], "float32", tirx.min))
        counted = tirx.if_then_else(least[number] == everywhere, often[number], T.float32(0))
        T.buffer_store(often, summed(threads, counted), [number])
        T.buffer_store(least, everywhere, [number])


def keep_from_pivot() -> tirx.PrimFunc:
    """(probabilities (b, v), a threshold (b,), the probability (b,) of what reaches it) → probabilities (b, v) of these
    alone."""
    batch, width = _sizes("batch_size", "vocab_size")
    probabilities = tirx.decl_buffer((batch, width), "float32", name="probabilities")
    threshold = tirx.decl_buffer((batch,), "float32", name="threshold")
    kept = tirx.decl_buffer((batch,), "float32", name="kept")
    result = tirx.decl_buffer((batch, width), "float32", name="result")

    def body(threads: Threads) -> None:
        with T.serial(0, _EACH) as number:
            place = (threads.x * _EACH + number) * threads.count + threads.number
            with gpu.when(place < width):
                value = T.bind(probabilities[threads.y, place])
                chosen = tirx.if_then_else(value >= threshold[threads.y], value / kept[threads.y], T.float32(0))
                T.buffer_store(result, chosen, [threads.y, place])

    return kernel([probabilities, threshold, kept, result], body, grid=(tirx.ceildiv(width, 8 * 32 * _EACH), batch))


def take_probabilities() -> tirx.PrimFunc:
    """(probabilities (b, v), order (b, v) int32, rows (n,) int32, tokens (n,) int32, places (m,) int32 in the flattened
    order) → the tokens' probabilities (n,), and the probability (m,) and the token (m,) int32 at each place."""
    batch, width, count, most = _sizes("batch_size", "vocab_size", "num_samples", "num_positions")
    probabilities = tirx.decl_buffer((batch, width), "float32", name="probabilities")
    order = tirx.decl_buffer((batch, width), "int32", name="order")
    rows, tokens = (tirx.decl_buffer((count,), "int32", name=name) for name in ("rows", "tokens"))
    places = tirx.decl_buffer((most,), "int32", name="places")
    sampled = tirx.decl_buffer((count,), "float32", name="sampled")
    found = tirx.decl_buffer((most,), "float32", name="found")
    found_tokens = tirx.decl_buffer((most,), "int32", name="found_tokens")

    def body(threads: Threads) -> None:
        number = threads.x * threads.count + threads.number
        with gpu.when(number < count):
            T.buffer_store(sampled, probabilities[rows[number], tokens[number]], [number])
        with gpu.when(number < most):
            place = T.bind(T.Cast("int64", places[number]))
            row = tirx.floordiv(place, width)
            token = T.bind(order[row, tirx.floormod(place, width)])
            T.buffer_store(found_tokens, token, [number])
            T.buffer_store(found, probabilities[row, token], [number])

    grid = (tirx.ceildiv(tirx.max(count, most), 8 * 32), 1)
    return kernel([probabilities, order, rows, tokens, places, sampled, found, found_tokens], body, grid=grid)


def verify_drafts() -> tirx.PrimFunc:
    """Speculative decoding: which tokens of trees of drafts are accepted.

    (draft probabilities (n, v), draft tokens (n,) int32, the model's probabilities (n, v), first child (n,) and next
    sibling (n,) of each node, int32, -1 for none, numbers (n,) in [0, 1), node (b,) int32). The model's probabilities
    lie at the parent of what is sampled from them. `node` holds the roots, and is left at the last node that is
    accepted; the probabilities there are what the next token is to be sampled from, less those of the drafts that were
    refused.
    """
    nodes, width, batch = _sizes("num_nodes", "vocab_size", "nbatch")
    drafts = tirx.decl_buffer((nodes, width), "float32", name="draft_probs")
    tokens = tirx.decl_buffer((nodes,), "int32", name="draft_tokens")
    model = tirx.decl_buffer((nodes, width), "float32", name="model_probs")
    child, sibling = (tirx.decl_buffer((nodes,), "int32", name=name) for name in ("first_child", "next_sibling"))
    numbers = tirx.decl_buffer((nodes,), "float32", name="numbers")
    node = tirx.decl_buffer((batch,), "int32", name="node")

    def body(threads: Threads) -> None:
        parent = register("int32", node[threads.x])
        draft = register("int32", child[parent[0]])
        with T.While(draft[0] != -1):
            gpu.synchronize()
            token = T.bind(tokens[draft[0]])
            accepted = register("int32", T.int32(0))
            enough = numbers[draft[0]] * drafts[draft[0], token]
            with gpu.when(model[parent[0], token] >= enough):
                T.buffer_store(accepted, T.int32(1), [0])
            # Everybody has read what is written next.
            gpu.synchronize()
            left = register("float32", T.float32(0))
            with gpu.when(accepted[0] == 0), T.serial(0, tirx.ceildiv(width, threads.count)) as step:
                place = step * threads.count + threads.number
                with gpu.when(place < width):
                    rest = tirx.max(model[parent[0], place] - drafts[draft[0], place], T.float32(0))
                    T.buffer_store(left, left[0] + rest, [0])
            whole = T.bind(summed(threads, left[0]))
            with gpu.when(tirx.all(accepted[0] == 0, whole < T.float32(_NEGLIGIBLE))):
                T.buffer_store(accepted, T.int32(1), [0])
            with T.If(accepted[0] == 1):
                with T.Then():
                    T.buffer_store(parent, draft[0], [0])
                    T.buffer_store(draft, child[draft[0]], [0])
                with T.Else():
                    with T.serial(0, tirx.ceildiv(width, threads.count)) as step:
                        place = step * threads.count + threads.number
                        with gpu.when(place < width):
                            rest = tirx.max(model[parent[0], place] - drafts[draft[0], place], T.float32(0))
                            T.buffer_store(model, rest / whole, [parent[0], place])
                    T.buffer_store(draft, sibling[draft[0]], [0])
        with gpu.when(threads.number == 0):
            T.buffer_store(node, parent[0], [threads.x])

    parameters = [drafts, tokens, model, child, sibling, numbers, node]
    return kernel(parameters, body, grid=(batch, 1), warps=32)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """A place in a row, int32, and the sum up to it; both are registers that all threads have."""

    place: Buffer
    total: Buffer


def _search(
    threads: Threads,
    row_of: Buffer,
    row: Expression,
    width: tirx.Var,
    passed: Callable[[Expression], Expression],
) -> _Found:
    """The first place at which the sum of the row from its begin passes; the last place that is not 0, where none
    does."""
    place, total = register("int32", T.int32(-1)), register("float32", T.float32(0))
    last = register("int32", T.int32(0))
    chunk = threads.count * _EACH
    totals = T.alloc_buffer((threads.warps,), "float32", scope="shared")
    with T.serial(0, tirx.ceildiv(width, chunk)) as step, gpu.when(place[0] == -1):
        own = T.alloc_buffer((_EACH,), "float32", scope="local")
        mine = register("float32", T.float32(0))
        begin = T.bind(T.Cast("int32", step) * chunk + threads.number * _EACH)
        with T.unroll(0, _EACH) as number:
            T.buffer_store(own, T.float32(0), [number])
            with gpu.when(begin + number < width):
                T.buffer_store(own, row_of[row, begin + number], [number])
            with gpu.when(own[number] > T.float32(0)):
                T.buffer_store(last, begin + number, [0])
            T.buffer_store(mine, mine[0] + own[number], [0])
        upto = register("float32", mine[0])
        for offset in (1, 2, 4, 8, 16):
            before = T.bind(T.tvm_warp_shuffle_up(T.uint32(0xFFFFFFFF), upto[0], offset, 32, 32))
            with gpu.when(threads.lane >= offset):
                T.buffer_store(upto, upto[0] + before, [0])
        gpu.synchronize()
        with gpu.when(threads.lane == 31):
            T.buffer_store(totals, upto[0], [threads.warp])
        gpu.synchronize()
        running = register("float32", total[0] + upto[0] - mine[0])
        with T.serial(0, threads.warps) as other:
            T.buffer_store(total, total[0] + totals[other], [0])
            with gpu.when(other < threads.warp):
                T.buffer_store(running, running[0] + totals[other], [0])
        with gpu.when(passed(total[0])):
            first = register("int32", T.int32(0x7FFFFFFF))
            sum_there = register("float32", T.float32(_LARGEST))
            with T.unroll(0, _EACH) as number:
                T.buffer_store(running, running[0] + own[number], [0])
                with gpu.when(tirx.all(passed(running[0]), first[0] == 0x7FFFFFFF)):
                    T.buffer_store(first, begin + number, [0])
                    T.buffer_store(sum_there, running[0], [0])
            earliest = T.bind(combined(threads, first[0], "int32", tirx.min))
            # Rounding may let the sum of a chunk pass where no thread's does: then it is the chunk's last place.
            end = tirx.min(T.Cast("int32", step) * chunk + chunk, T.Cast("int32", width)) - 1
            T.buffer_store(place, tirx.min(earliest, end), [0])
            there = T.bind(combined(threads, sum_there[0], "float32", tirx.min))
            T.buffer_store(total, tirx.min(there, total[0]), [0])
    with gpu.when(place[0] == -1):
        T.buffer_store(place, combined(threads, last[0], "int32", tirx.max), [0])
    return _Found(place=place, total=total)


def _sizes(*names: str) -> list[tirx.Var]:
    return [tirx.Var(name, "int64") for name in names]
