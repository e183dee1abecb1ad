"""Rotary position embedding of queries and keys, in place of TVM's kernel and with its parameters.

TVM's kernel computes a power, a sine and a cosine for each element of each head. Here they are computed once a token,
for half of the head's dimension (the other half has the same angles), and used for all heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cpu.kernels.rotation import head_lanes
from mlcbuild.compiler.kernels.building import (
    FLOATS,
    Buffer,
    Expression,
    converted,
    float32,
    lanes,
    loop,
    replace_body,
    statement,
    store,
)
from mlcbuild.compiler.kernels.rotary import angle, supports

_WORTH_THREADS = 64  # tokens


def fits(original: tirx.PrimFunc, rope_scaling: Mapping[str, Any]) -> bool:
    """Whether `rotate` can stand for TVM's kernel."""
    packed = original.params[0]
    return supports(rope_scaling, int(packed.shape[2])) and str(packed.dtype) in FLOATS


def rotate(original: tirx.PrimFunc, *, theta: float, scale: float, rope_scaling: Mapping[str, Any]) -> tirx.PrimFunc:
    """Splits (tokens, heads, head_dim) into queries, keys and values, and rotates the first two if told to.

    The angle at position p and place d is as TVM has it: `theta` is the base of frequencies, `scale` multiplies p,
    `rope_scaling` names the rule.
    """
    packed, positions, queries, keys, values, apply = original.params
    half, dtype = int(packed.shape[2]) // 2, str(packed.dtype)
    count = head_lanes(2 * half)
    query_heads, key_heads = int(queries.shape[1]), int(keys.shape[1])

    def angles(token: Expression, cosines: Buffer, sines: Buffer) -> None:
        position = T.bind(T.Cast("float32", positions[token]) * T.float32(scale))
        with loop(half) as d:
            turned = T.bind(angle(position, d, head_dim=2 * half, theta=theta, rope_scaling=rope_scaling))
            store(cosines, T.if_then_else(apply > 0, tirx.cos(turned), T.float32(1)), d)
            store(sines, T.if_then_else(apply > 0, tirx.sin(turned), T.float32(0)), d)

    def rotate_heads(token: Expression, heads: int, first: int, output: Buffer, cosines: Buffer, sines: Buffer) -> None:
        with loop(heads) as head, loop(half // count) as step:
            low, high = lanes(step * count, count), lanes(step * count + half, count)
            x = T.bind(float32(packed[token, first + head, low], count))
            y = T.bind(float32(packed[token, first + head, high], count))
            cosine, sine = T.bind(cosines[low]), T.bind(sines[low])
            store(output, converted(x * cosine - y * sine, dtype, count), token, head, low)
            store(output, converted(y * cosine + x * sine, dtype, count), token, head, high)

    def rotate_token(token: Expression) -> None:
        cosines, sines = T.alloc_buffer((half,), "float32"), T.alloc_buffer((half,), "float32")
        angles(token, cosines, sines)
        rotate_heads(token, query_heads, 0, queries, cosines, sines)
        rotate_heads(token, key_heads, query_heads, keys, cosines, sines)
        with loop(key_heads) as head, loop(2 * half // count) as step:
            d = lanes(step * count, count)
            store(values, packed[token, query_heads + key_heads + head, d], token, head, d)

    def body() -> None:
        tokens = packed.shape[0]
        with T.If(tokens >= _WORTH_THREADS):
            with T.Then(), loop(tokens, parallel=True) as token:
                rotate_token(token)
            with T.Else(), loop(tokens) as token:
                rotate_token(token)

    return replace_body(original, statement(body))
