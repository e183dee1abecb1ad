"""Which of the tokens of a forward pass belong to which sequence: a recurrence has to know, where attention asks its
cache.

An engine tells the ends of sequences where it wants their last logits. Other passes are of one sequence, or of a token
of each.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import te, tirx
from tvm.relax.frontend import nn


@dataclass(frozen=True, kw_only=True)
class Spans:
    """The tokens of sequence b are those from begins[b] to ends[b] - 1 (sequences,), and owners (tokens,) are the
    numbers of their sequences; all int32."""

    begins: nn.Tensor
    ends: nn.Tensor
    owners: nn.Tensor

    @property
    def sequences(self) -> tirx.Expr:
        """How many there are."""
        return self.begins.shape[0]


def one_sequence(hidden: nn.Tensor) -> Spans:
    """The spans of (1, n, hidden), all of one sequence."""

    def compute(x: te.Tensor) -> list[te.Tensor]:
        zero = tirx.const(0, "int32")
        return [
            te.compute((1,), lambda _: zero, name="begins"),
            te.compute((1,), lambda _: x.shape[1].astype("int32"), name="ends"),
            te.compute((x.shape[1],), lambda _: zero, name="owners"),
        ]

    return _spans("one_sequence", compute, hidden)


def one_token_each(hidden: nn.Tensor) -> Spans:
    """The spans of (n, 1, hidden), where each token is of another sequence."""

    def compute(x: te.Tensor) -> list[te.Tensor]:
        shape = (x.shape[0],)
        return [
            te.compute(shape, lambda i: i.astype("int32"), name="begins"),
            te.compute(shape, lambda i: i.astype("int32") + 1, name="ends"),
            te.compute(shape, lambda i: i.astype("int32"), name="owners"),
        ]

    return _spans("one_token_each", compute, hidden)


def ending_at(hidden: nn.Tensor, last: nn.Tensor) -> Spans:
    """The spans of (1, n, hidden), sequences one after another, of which `last` (sequences,) int32 are the last
    tokens."""

    def compute(x: te.Tensor, last: te.Tensor) -> list[te.Tensor]:
        count = last.shape[0]
        number = te.reduce_axis((0, count), "number")
        before = te.compute(
            (x.shape[1],),
            lambda token: te.sum((last[number] < token.astype("int32")).astype("int32"), axis=number),
            name="ended_before",
        )
        return [
            te.compute((count,), lambda i: tirx.if_then_else(i == 0, 0, last[i - 1] + 1), name="begins"),
            te.compute((count,), lambda i: last[i] + 1, name="ends"),
            # What lies behind the last sequence, if an engine pads a pass, is computed with the last one's numbers.
            te.compute(before.shape, lambda i: tirx.min(before[i], (count - 1).astype("int32")), name="owners"),
        ]

    return _spans("sequences_ending_at", compute, hidden, last)


def _spans(name: str, compute: object, *tensors: nn.Tensor) -> Spans:
    begins, ends, owners = nn.op.tensor_expr_op(compute, name, list(tensors))
    return Spans(begins=begins, ends=ends, owners=owners)
