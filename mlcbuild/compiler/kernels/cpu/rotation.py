"""The angles of rotary position embeddings, by TVM's frequency rules, and the turning of heads by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx
from tvm.relax.frontend.nn.llm.position_embedding import switch_rope_freq_func

from mlcbuild.compiler.kernels.building import LANES, Buffer, Expression, lanes, loop, store

_RULES = (None, "llama3")  # the angle is position times frequency, and the same at d and d + head_dim / 2


def supports(rope_scaling: Mapping[str, Any], head_dim: int) -> bool:
    """Whether angles of this rule can be computed here."""
    return rope_scaling.get("rope_type") in _RULES and head_dim % 2 == 0


def head_lanes(head_dim: int) -> int:
    """How many of a head's numbers are a vector: halves of a head, which are turned against each other, are whole
    vectors."""
    return next(count for count in (LANES, 4, 2, 1) if head_dim // 2 % count == 0)


def angle(
    position: Expression, d: Expression, *, head_dim: int, theta: Expression, rope_scaling: Mapping[str, Any]
) -> Expression:
    """The angle at a position, float32, and a place d < head_dim / 2; `theta` is the base of the frequencies."""
    cosine, _, bindings = switch_rope_freq_func(dict(rope_scaling))(position, d, head_dim, theta, "float32")
    result = cosine.args[0]
    for variable, value in bindings.items():
        result = tirx.Let(variable, value, result)
    return result


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
