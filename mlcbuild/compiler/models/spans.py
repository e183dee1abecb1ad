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
    """The tokens of sequence b are those from offsets[b] to offsets[b + 1] (sequences + 1,), and owners (tokens,) are
    the numbers of their sequences; both int32."""

    offsets: nn.Tensor
    owners: nn.Tensor

    @property
    def sequences(self) -> tirx.Expr:
        """How many there are."""
        return self.offsets.shape[0] - 1


def one_sequence(hidden: nn.Tensor) -> Spans:
    """The spans of (1, n, hidden), all of one sequence."""

    def compute(x: te.Tensor) -> list[te.Tensor]:
        offsets = te.compute((2,), lambda i: tirx.if_then_else(i == 0, 0, x.shape[1]).astype("int32"), name="offsets")
        owners = te.compute((x.shape[1],), lambda _: tirx.const(0, "int32"), name="owners")
        return [offsets, owners]

    return _spans("one_sequence", compute, hidden)


def one_token_each(hidden: nn.Tensor) -> Spans:
    """The spans of (n, 1, hidden), where each token is of another sequence."""

    def compute(x: te.Tensor) -> list[te.Tensor]:
        count = x.shape[0]
        return [te.compute((size,), lambda i: i.astype("int32"), name="numbers") for size in (count + 1, count)]

    return _spans("one_token_each", compute, hidden)


def ending_at(hidden: nn.Tensor, ends: nn.Tensor) -> Spans:
    """The spans of (1, n, hidden), sequences one after another, of which `ends` (sequences,) int32 are the last
    tokens."""

    def compute(x: te.Tensor, last: te.Tensor) -> list[te.Tensor]:
        count = last.shape[0]
        offsets = te.compute(
            (count + 1,), lambda i: tirx.if_then_else(i == 0, tirx.const(0, "int32"), last[i - 1] + 1), name="offsets"
        )
        number = te.reduce_axis((0, count), "number")
        before = te.compute(
            (x.shape[1],),
            lambda token: te.sum((last[number] < token.astype("int32")).astype("int32"), axis=number),
            name="ended_before",
        )
        # What lies behind the last sequence, if an engine pads a pass, is computed with the last one's numbers.
        owners = te.compute(before.shape, lambda i: tirx.min(before[i], (count - 1).astype("int32")), name="owners")
        return [offsets, owners]

    return _spans("sequences_ending_at", compute, hidden, ends)


def _spans(name: str, compute: object, *tensors: nn.Tensor) -> Spans:
    offsets, owners = nn.op.tensor_expr_op(compute, name, list(tensors))
    return Spans(offsets=offsets, owners=owners)
