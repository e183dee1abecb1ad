"""The recurrence of `kernels.state_scan` in a model."""

from __future__ import annotations

from tvm.relax.frontend import nn

from mlcbuild.compiler.kernels.state_scan import StateScan, scan_kernel
from mlcbuild.compiler.models.spans import Spans


def scan_states(
    scan: StateScan, packed: nn.Tensor, decay: nn.Tensor, rate: nn.Tensor, states: nn.Tensor, spans: Spans
) -> tuple[nn.Tensor, nn.Tensor]:
    """What a kernel of `scan_kernel` makes of these: y (tokens, heads * rows), and the states (sequences, size) behind
    the last tokens."""
    y = nn.Tensor.placeholder((packed.shape[0], scan.heads * scan.rows), "float32")
    made = nn.Tensor.placeholder(tuple(states.shape), "float32")
    given = [packed, decay, rate, states, spans.offsets]
    found: tuple[nn.Tensor, nn.Tensor] = nn.op.tensor_ir_op(scan_kernel(scan), "state_scan", given, [y, made])
    return found
