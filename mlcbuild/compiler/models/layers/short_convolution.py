"""A causal convolution along the text, of each channel alone, that sees a few tokens: those before the pass come from
the sequence's state."""

from __future__ import annotations

from tvm import te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.models.layers.spans import Spans


def convolve(
    x: nn.Tensor, state: nn.Tensor, weight: nn.Tensor, bias: nn.Tensor | None, spans: Spans, *, first: int = 0
) -> tuple[nn.Tensor, nn.Tensor]:
    """(tokens, …), of whose columns those from `first` on are the channels, and the inputs of the last tokens
    (sequences, (width - 1) * channels) → silu of the convolution (tokens, channels), and the inputs for the next pass.

    y[t, c] = silu(bias[c] + Σ weight[c, 0, k] x[t - width + 1 + k, c]), summed in float32.
    """
    channels, _, width = (int(size) for size in weight.shape)
    before = width - 1

    def compute(
        x: te.Tensor, old: te.Tensor, weights: te.Tensor, begins: te.Tensor, owners: te.Tensor, *bias: te.Tensor
    ) -> te.Tensor:
        def element(token: tirx.Var, channel: tirx.Var) -> tirx.Expr:
            owner = owners[token].astype("int64")
            begin = begins[owner].astype("int64")
            total = bias[0][channel].astype("float32") if bias else tirx.const(0, "float32")
            for k in range(width):
                place = token - before + k
                kept = old[owner, (place - begin + before) * channels + channel]
                seen = x[token, first + channel] if k == before else x[place, first + channel]
                value = seen if k == before else tirx.if_then_else(place >= begin, seen, kept)
                total = total + value.astype("float32") * weights[channel, 0, k].astype("float32")
            return (total * tirx.sigmoid(total)).astype(x.dtype)

        return te.compute((x.shape[0], channels), element, name="short_convolution")

    def remember(x: te.Tensor, old: te.Tensor, begins: te.Tensor, ends: te.Tensor) -> te.Tensor:
        def element(sequence: tirx.Var, at: tirx.Var) -> tirx.Expr:
            begin = begins[sequence].astype("int64")
            place = ends[sequence].astype("int64") - before + at // channels
            kept = old[sequence, (place - begin + before) * channels + at % channels]
            return tirx.if_then_else(place >= begin, x[place, first + at % channels], kept)

        return te.compute(old.shape, element, name="remembered")

    given = [x, state, weight, spans.begins, spans.owners, *([] if bias is None else [bias])]
    made = nn.op.tensor_expr_op(compute, "short_convolution", given)
    return made, nn.op.tensor_expr_op(remember, "remember_inputs", [x, state, spans.begins, spans.ends])
