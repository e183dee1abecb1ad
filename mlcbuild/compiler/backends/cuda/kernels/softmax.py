"""Softmax over a vocabulary in two kernels: what chunks of a row say of themselves, then every element.

A row is too long for one block to be quick, and blocks cannot wait for each other. So the first kernel finds each
chunk's largest logit and the sum of its exponentials, and every block of the second puts together what all chunks of
its row have.
"""

from __future__ import annotations

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels.launching import Threads, kernel, largest, register, summed
from mlcbuild.compiler.kernels.building import Buffer, Expression

CHUNK = 4096
_LOWEST = -3.4028234663852886e38
_GREEDY_BELOW = 1e-5  # temperatures up to this count as 0: dividing by them would overflow


def chunks(width: int) -> int:
    """How many chunks a row of `width` elements has."""
    return -(-width // CHUNK)


def describe_chunks(width: int) -> tirx.PrimFunc:
    """(logits (b, 1, width), temperature (b,), active int64) → (maxima (b, chunks), sums (b, chunks)), float32.

    Of the row, the first `active` elements count. A sum is that of exp((logit - maximum) / temperature), for
    temperature 0 the number of logits that are the maximum.
    """
    batch = tirx.Var("batch_size", "int64")
    logits, temperature = _logits(batch, width), _vector(batch, "temperature")
    active = tirx.Var("active_vocab_size", "int64")
    maxima, sums = (tirx.decl_buffer((batch, chunks(width)), "float32", name=name) for name in ("maxima", "sums"))

    def body(threads: Threads) -> None:
        each = CHUNK // threads.count
        own = T.alloc_buffer((each,), "float32", scope="local")
        top = register("float32", T.float32(_LOWEST))
        heat = T.bind(temperature[threads.y])
        with T.unroll(0, each) as number:
            place = threads.x * CHUNK + number * threads.count + threads.number
            T.buffer_store(own, T.float32(_LOWEST), [number])
            with T.If(place < active), T.Then():
                T.buffer_store(own, logits[threads.y, 0, place], [number])
            T.buffer_store(top, tirx.max(top[0], own[number]), [0])
        maximum = T.bind(largest(threads, top[0]))
        total = register("float32", T.float32(0))
        with T.unroll(0, each) as number:
            place = threads.x * CHUNK + number * threads.count + threads.number
            with T.If(place < active), T.Then():
                T.buffer_store(total, total[0] + _weight(own[number], maximum, heat), [0])
        everything = T.bind(summed(threads, total[0]))
        with T.If(threads.number == 0), T.Then():
            T.buffer_store(maxima, maximum, [threads.y, threads.x])
            T.buffer_store(sums, everything, [threads.y, threads.x])

    return kernel([logits, temperature, active, maxima, sums], body, grid=(chunks(width), batch))


def normalize(width: int) -> tirx.PrimFunc:
    """(logits, temperature, active, maxima, sums) of `describe_chunks` → probabilities (b, 1, width) float32."""
    batch = tirx.Var("batch_size", "int64")
    logits, temperature = _logits(batch, width), _vector(batch, "temperature")
    active = tirx.Var("active_vocab_size", "int64")
    maxima, sums = (tirx.decl_buffer((batch, chunks(width)), "float32", name=name) for name in ("maxima", "sums"))
    result = tirx.decl_buffer((batch, 1, width), "float32", name="probabilities")

    def body(threads: Threads) -> None:
        heat = T.bind(temperature[threads.y])
        top, total = register("float32", T.float32(_LOWEST)), register("float32", T.float32(0))
        with T.serial(0, chunks(width)) as number:
            T.buffer_store(top, tirx.max(top[0], maxima[threads.y, number]), [0])
        with T.serial(0, chunks(width)) as number:
            part = sums[threads.y, number] * _weight(maxima[threads.y, number], top[0], heat)
            T.buffer_store(total, total[0] + part, [0])
        with T.unroll(0, CHUNK // threads.count) as number:
            place = threads.x * CHUNK + number * threads.count + threads.number
            with T.If(place < width), T.Then():
                value = _weight(logits[threads.y, 0, place], top[0], heat) / total[0]
                T.buffer_store(result, tirx.if_then_else(place < active, value, T.float32(0)), [threads.y, 0, place])

    return kernel([logits, temperature, active, maxima, sums, result], body, grid=(chunks(width), batch))


def _weight(logit: Expression, maximum: Expression, temperature: Expression) -> Expression:
    greedy = tirx.if_then_else(logit >= maximum, T.float32(1), T.float32(0))
    return tirx.if_then_else(temperature > T.float32(_GREEDY_BELOW), tirx.exp((logit - maximum) / temperature), greedy)


def _logits(batch: tirx.Var, width: int) -> Buffer:
    return tirx.decl_buffer((batch, 1, width), "float32", name="logits")


def _vector(batch: tirx.Var, name: str) -> Buffer:
    return tirx.decl_buffer((batch,), "float32", name=name)
