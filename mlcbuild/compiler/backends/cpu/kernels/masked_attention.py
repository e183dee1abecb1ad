"""Attention of padded texts (`layers.masked_attention`) on CPUs.

First each text's tokens that are not masked are numbered. Then each query token and head is one piece of work over
those, by the code that attention over the key-value cache has; threads share the pieces.
"""

from __future__ import annotations

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import s_tir, tirx

from mlcbuild.compiler.backends.cpu.kernels.attention_keys import KeyRange, Row
from mlcbuild.compiler.backends.cpu.kernels.attention_scores import Query, attend_heads
from mlcbuild.compiler.kernels.building import Buffer, Expression, loop, statement, store
from mlcbuild.compiler.models.architecture.attention_rules import NO_RULES

_OPAQUE = 8  # TVM's number of kernels that fusion leaves alone


class _Heads:
    """Some of a buffer's heads, read as if they were all."""

    def __init__(self, buffer: Buffer, first: int, heads: int) -> None:
        self._buffer, self._first = buffer, first
        self.shape = (buffer.shape[0], heads, buffer.shape[2])

    def __getitem__(self, place: tuple[Expression, Expression, Expression]) -> Expression:
        row, head, d = place
        return self._buffer[row, self._first + head, d]


def masked_attention(heads: int, head_dim: int, dtype: str) -> tirx.PrimFunc:
    """The kernel for heads of that size and number, scheduled for good."""
    tokens, texts, length = (tirx.Var(name, "int64") for name in ("tokens", "texts", "length"))
    qkv = tirx.decl_buffer((tokens, 3 * heads, head_dim), dtype, name="qkv")
    mask = tirx.decl_buffer((texts, length), "int32", name="mask")
    output = tirx.decl_buffer((tokens, heads, head_dim), dtype, name="output")
    queries, keys, values = (_Heads(qkv, part * heads, heads) for part in range(3))

    def attend() -> None:
        seen = T.alloc_buffer((texts, length), "int32")
        counts = T.alloc_buffer((texts,), "int32")
        with loop(texts) as text:
            store(counts, T.int32(0), text)
            with loop(length) as place, T.If(mask[text, place] != 0), T.Then():
                store(seen, T.Cast("int32", place), text, counts[text])
                store(counts, counts[text] + 1, text)
        with loop(texts * length * heads, parallel=True) as number:
            row, head = T.bind(tirx.floordiv(number, heads)), tirx.floormod(number, heads)
            text = T.bind(tirx.floordiv(row, length))

            def at(key: Expression) -> tuple[Row, Row]:
                other = T.bind(text * length + seen[text, key])
                return (lambda d: keys[other, head, d]), (lambda d: values[other, head, d])

            query = Query(queries=queries, output=output, logarithms=None, row=row, scale=T.float32(head_dim**-0.5))
            whole = KeyRange(begin=T.int32(0), end=counts[text], most=length)
            attend_heads(query, head, heads, whole, at, None, rules=NO_RULES, begins=T.bool(True))

    block = s_tir.SBlock(iter_vars=[], reads=[], writes=[], name_hint="root", body=statement(attend))
    made = tirx.PrimFunc([qkv, mask, output], s_tir.SBlockRealize([], True, block))
    attributes = {"tirx.is_scheduled": True, "tirx.noalias": True, "s_tir": True, "op_pattern": _OPAQUE}
    return made.with_attrs(attributes)
