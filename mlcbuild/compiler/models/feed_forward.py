"""The feed-forward part of a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tvm.relax.frontend import nn

from mlcbuild.compiler.models.decoder import Activation, FeedForwardConfig
from mlcbuild.compiler.quantization.layers import Linear
from mlcbuild.compiler.quantization.reader import Reader

ACTIVATIONS: Mapping[Activation, Callable[[nn.Tensor], nn.Tensor]] = {
    Activation.SILU: nn.op.silu,
    Activation.GELU: nn.op.gelu,
    Activation.GELU_TANH: partial(nn.op.gelu, approximate="tanh"),
    Activation.RELU: nn.op.relu,
}


class GatedFeedForward(nn.Module):  # type: ignore[misc]
    """down(activation(gate(x)) · up(x)); gate and up are one product."""

    def __init__(self, config: FeedForwardConfig, hidden_size: int, reader: Reader, *, name: str) -> None:
        self.activation = ACTIVATIONS[config.activation]
        self.gate_up_proj = Linear(
            hidden_size,
            2 * config.intermediate_size,
            reader=reader,
            bias=config.bias,
            name=f"{name}.gate_up_proj",
        )
        self.down_proj = Linear(
            config.intermediate_size, hidden_size, reader=reader, bias=config.bias, name=f"{name}.down_proj"
        )

    def forward(self, hidden: nn.Tensor) -> nn.Tensor:
        gate, up = nn.op.split(self.gate_up_proj(hidden), 2, axis=-1)
        return self.down_proj(self.activation(gate) * up)
