"""The recurrence of `kernels.state_scan` in a model, and what its decays are made of."""

from __future__ import annotations

from tvm import tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.kernels.state_scan import StateScan, scan_kernel
from mlcbuild.compiler.models.layers.spans import Spans


def scan_states(
    scan: StateScan, packed: nn.Tensor, decay: nn.Tensor, rate: nn.Tensor, states: nn.Tensor, spans: Spans
) -> tuple[nn.Tensor, nn.Tensor]:
    """What a kernel of `scan_kernel` makes of these: y (tokens, heads * rows), and the states (sequences, size) behind
    the last tokens."""
    y = nn.Tensor.placeholder((packed.shape[0], scan.heads * scan.rows), "float32")
    made = nn.Tensor.placeholder(tuple(states.shape), "float32")
    given = [packed, decay, rate, states, spans.begins, spans.ends]
    found: tuple[nn.Tensor, nn.Tensor] = nn.op.tensor_ir_op(scan_kernel(scan), "state_scan", given, [y, made])
    return found


def softplus(x: tirx.Expr) -> tirx.Expr:
    """log(1 + e^x). Where u = e^x is small, 1 + u is rounded, and log(1 + u) u / ((1 + u) - 1) makes up for it (D.
    Goldberg, "What every computer scientist should know about floating-point arithmetic", theorem 4)."""
    u = tirx.exp(tirx.min(x, tirx.const(20, "float32")))
    more = 1 + u
    small = tirx.if_then_else(more > 1, tirx.log(more) * u / tirx.if_then_else(more > 1, more - 1, 1.0), u)
    return tirx.if_then_else(x > 20, x, small)
