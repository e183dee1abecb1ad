"""Rotary position embeddings in vectors: a head is turned by the angles of `kernels.rotary`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.kernels.building import LANES, Buffer, Expression, lanes, loop, store
from mlcbuild.compiler.kernels.rotary import angle


def head_lanes(head_dim: int) -> int:
    """How many of a head's numbers are a vector: halves of a head, which are turned against each other, are whole
    vectors."""
    return next(count for count in (LANES, 4, 2, 1) if head_dim // 2 % count == 0)


def store_frequencies(frequencies: Buffer, *, theta: Expression, rope_scaling: Mapping[str, Any]) -> None:
    """Angles a unit of position, for half of a head's places."""
    half = int(frequencies.shape[0])
    with loop(half) as d:
        value = angle(T.float32(1), d, head_dim=2 * half, theta=theta, rope_scaling=rope_scaling)
        store(frequencies, value, d)


def store_rotation(position: Expression, frequencies: Buffer, cosines: Buffer, sines: Buffer, *row: Expression) -> None:
    """Cosines and sines at a position, into a row of each buffer, or all of it."""
    with loop(frequencies.shape[0]) as d:
        turned = T.bind(position * frequencies[d])
        store(cosines, tirx.cos(turned), *row, d)
        store(sines, tirx.sin(turned), *row, d)


def rotated(vectors: list[Expression], cosines: Buffer, sines: Buffer, *row: Expression) -> list[Expression]:
    """A head as a list of vectors, turned by the angles in a row of each buffer."""
    half = len(vectors) // 2
    count = int(cosines.shape[-1]) // half
    turned: list[Expression] = [None] * len(vectors)
    for number in range(half):
        d = lanes(number * count, count)
        x, y = vectors[number], vectors[half + number]
        cosine, sine = T.bind(cosines[(*row, d)]), T.bind(sines[(*row, d)])
        turned[number] = T.bind(x * cosine - y * sine)
        turned[half + number] = T.bind(y * cosine + x * sine)
    return turned
