"""The feed-forward part of a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tvm.relax.frontend import nn

from mlcbuild.compiler.models.architecture.activation import Activation
from mlcbuild.compiler.models.architecture.decoder import FeedForwardConfig
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.quantization.layers import Linear
from mlcbuild.compiler.quantization.reader import Reader


def _relu_squared(x: nn.Tensor) -> nn.Tensor:
    return nn.op.square(nn.op.relu(x))


def _gelu_sigmoid(x: nn.Tensor) -> nn.Tensor:
    return x * nn.op.sigmoid(x * 1.702)


ACTIVATIONS: Mapping[Activation, Callable[[nn.Tensor], nn.Tensor]] = {
    Activation.SILU: nn.op.silu,
    Activation.GELU: nn.op.gelu,
    Activation.GELU_TANH: partial(nn.op.gelu, approximate="tanh"),
    Activation.GELU_SIGMOID: _gelu_sigmoid,
    Activation.RELU: nn.op.relu,
    Activation.RELU_SQUARED: _relu_squared,
}


class FeedForward:
    """The feed-forward of the layer called `layer`: down(activation(gate(x)) · up(x)), where gate and up are one
    product if they have one name, or down(activation(up(x))).

    `modules` are its modules by their names below the layer.
    """

    def __init__(
        self, config: FeedForwardConfig, names: DecoderNames, hidden_size: int, reader: Reader, *, layer: str
    ) -> None:
        self.activation = ACTIVATIONS[config.activation]
        inner = config.intermediate_size

        def linear(name: str, size: int, out: int) -> Linear:
            return Linear(size, out, reader=reader, bias=config.bias, name=f"{layer}.{name}")

        if config.gated and not names.gate:
            rows = {names.gate_up: 2 * inner}
        else:
            rows = {names.gate: inner, names.up: inner} if config.gated else {names.up: inner}
        self.inner = [linear(name, hidden_size, out) for name, out in rows.items()]
        self.down = linear(names.down, inner, hidden_size)
        self.modules = {**dict(zip(rows, self.inner, strict=True)), names.down: self.down}
        self.gated, self.up_first = config.gated, config.up_first

    @property
    def parts(self) -> list[nn.Module]:
        """What has the parameters that a call reads."""
        return list(self.modules.values())

    def __call__(self, hidden: nn.Tensor) -> nn.Tensor:
        """(batch, n, hidden) → the same."""
        made = [linear(hidden) for linear in self.inner]
        if not self.gated:
            return self.down(self.activation(made[0]))
        gate, up = made if len(made) == 2 else nn.op.split(made[0], 2, axis=-1)
        if self.up_first:
            gate, up = up, gate
        return self.down(self.activation(gate) * up)
