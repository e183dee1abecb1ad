"""Rotary position embedding of queries and keys, in place of TVM's kernel and with its parameters.

TVM's kernel computes a power, a sine and a cosine for each element of each head. Here they are computed once a token,
for half of the head's dimension (the other half has the same angles), and used for all heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx
from tvm.relax.frontend.nn.llm.position_embedding import switch_rope_freq_func

from mlcbuild.compiler.kernels.building import Buffer, Expression, float32, lanes, loop, replace_body, statement, store

_LANES = 8
_WORTH_THREADS = 64  # tokens
_EQUAL_HALVES = (None, "llama3")  # rules whose angles are the same at d and d + half


def fits(original: tirx.PrimFunc, rope_scaling: Mapping[str, Any]) -> bool:
    """Whether `rotate` can stand for TVM's kernel."""
    packed = original.params[0]
    known = rope_scaling.get("rope_type") in _EQUAL_HALVES and str(packed.dtype) in ("float32", "float16")
    return known and int(packed.shape[2]) % (2 * _LANES) == 0


def rotate(original: tirx.PrimFunc, *, theta: float, scale: float, rope_scaling: Mapping[str, Any]) -> tirx.PrimFunc:
    """Splits (tokens, heads, head_dim) into queries, keys and values, and rotates the first two if told to.

    The angle at position p and place d is as TVM has it: `theta` is the base of frequencies, `scale` multiplies p,
    `rope_scaling` names the rule.
    """
    packed, positions, queries, keys, values, apply = original.params
    half = int(packed.shape[2]) // 2
    query_heads, key_heads = int(queries.shape[1]), int(keys.shape[1])
    frequencies = switch_rope_freq_func(dict(rope_scaling))

    def angles(token: Expression, cosines: Buffer, sines: Buffer) -> None:
        position = T.bind(T.Cast("float32", positions[token]) * T.float32(scale))
        with loop(half) as d:
            cosine, sine, bindings = frequencies(position, d, 2 * half, theta, "float32")
            for variable, value in bindings.items():
                cosine, sine = tirx.Let(variable, value, cosine), tirx.Let(variable, value, sine)
            store(cosines, T.if_then_else(apply > 0, cosine, T.float32(1)), d)
            store(sines, T.if_then_else(apply > 0, sine, T.float32(0)), d)

    def rotate_heads(token: Expression, count: int, first: int, output: Buffer, cosines: Buffer, sines: Buffer) -> None:
        with loop(count) as head, loop(half // _LANES) as step:
            low, high = lanes(step * _LANES, _LANES), lanes(step * _LANES + half, _LANES)
            x = T.bind(float32(packed[token, first + head, low], _LANES))
            y = T.bind(float32(packed[token, first + head, high], _LANES))
            cosine, sine = T.bind(cosines[low]), T.bind(sines[low])
            store(output, _as(output, x * cosine - y * sine), token, head, low)
            store(output, _as(output, y * cosine + x * sine), token, head, high)

    def rotate_token(token: Expression) -> None:
        cosines, sines = T.alloc_buffer((half,), "float32"), T.alloc_buffer((half,), "float32")
        angles(token, cosines, sines)
        rotate_heads(token, query_heads, 0, queries, cosines, sines)
        rotate_heads(token, key_heads, query_heads, keys, cosines, sines)
        with loop(key_heads) as head, loop(2 * half // _LANES) as step:
            d = lanes(step * _LANES, _LANES)
            store(values, packed[token, query_heads + key_heads + head, d], token, head, d)

    def body() -> None:
        tokens = packed.shape[0]
        with T.If(tokens >= _WORTH_THREADS):
            with T.Then(), loop(tokens, parallel=True) as token:
                rotate_token(token)
            with T.Else(), loop(tokens) as token:
                rotate_token(token)

    return replace_body(original, statement(body))


def _as(output: Buffer, value: Expression) -> Expression:
    dtype = str(output.dtype)
    return value if dtype == "float32" else T.Cast(f"{dtype}x{_LANES}", value)
