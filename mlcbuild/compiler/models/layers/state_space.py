"""Mamba 2's layer: a product, a short convolution, the selective scan, a gated norm and a product.

T. Dao and A. Gu, "Transformers are SSMs" (2024), section 7.
"""

from __future__ import annotations

from tvm import relax, te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.kernels.state_scan import StateScan
from mlcbuild.compiler.models.architecture.recurrence import StateSpaceConfig
from mlcbuild.compiler.models.caches.recurrent_state import RecurrentState, StateVector
from mlcbuild.compiler.models.layers.scanning import scan_states, softplus
from mlcbuild.compiler.models.layers.short_convolution import convolve
from mlcbuild.compiler.models.layers.spans import Spans
from mlcbuild.compiler.quantization.layers import Linear
from mlcbuild.compiler.quantization.reader import Reader


class Convolution(nn.Module):  # type: ignore[misc]
    """`weight` (channels, 1, width), and a bias for each channel, if it has one."""

    def __init__(self, channels: int, width: int, *, bias: bool, dtype: str) -> None:
        self.weight = nn.Parameter((channels, 1, width), dtype)
        self.bias = nn.Parameter((channels,), dtype) if bias else None


class Weighted(nn.Module):  # type: ignore[misc]
    """A `weight` for each element."""

    def __init__(self, size: int, *, dtype: str) -> None:
        self.weight = nn.Parameter((size,), dtype)


class StateSpace(nn.Module):  # type: ignore[misc]
    """The module called `name`. The first product makes the gate, what is convolved (values, keys, queries), and a step
    for each head."""

    def __init__(self, config: StateSpaceConfig, hidden_size: int, reader: Reader, *, name: str) -> None:
        dtype = reader.scheme.model_dtype
        size = config.inner + config.channels + config.heads
        self._config = config
        self._dtype = dtype
        self.in_proj = Linear(hidden_size, size, reader=reader, bias=config.bias, name=f"{name}.in_proj")
        self.conv1d = Convolution(config.channels, config.convolution, bias=config.convolution_bias, dtype=dtype)
        self.dt_bias = nn.Parameter((config.heads,), "float32")
        self.A_log = nn.Parameter((config.heads,), "float32")
        self.D = nn.Parameter((config.heads,), "float32")
        self.norm = Weighted(config.inner, dtype=dtype)
        self.out_proj = Linear(config.inner, hidden_size, reader=reader, bias=config.bias, name=f"{name}.out_proj")
        convolved, recurrent = config.state_sizes
        self._vectors = StateVector(size=convolved, dtype=dtype), StateVector(size=recurrent, dtype="float32")
        keys = config.groups * config.state_size
        self._scan = StateScan(
            heads=config.heads,
            rows=config.head_dim,
            groups=config.groups,
            columns=config.state_size,
            value_at=0,
            key_at=config.inner,
            query_at=config.inner + keys,
            channels=config.channels,
            delta=False,
            dtype=dtype,
        )

    @property
    def vectors(self) -> tuple[StateVector, ...]:
        """The states that the layer keeps for a sequence."""
        return self._vectors

    def forward(
        self, hidden: nn.Tensor, state: RecurrentState, layer: relax.Expr, spans: Spans
    ) -> tuple[nn.Tensor, RecurrentState]:
        """(a, n, hidden) → the same, and the state behind it, at the layer of a number."""
        batch, length, _ = hidden.shape
        projected = self.in_proj(hidden)
        projected = nn.op.reshape(projected, (batch * length, projected.shape[-1]))
        inputs = state.read(layer, 0, self._vectors[0], spans.sequences)
        bias = self.conv1d.bias
        packed, inputs = convolve(projected, inputs, self.conv1d.weight, bias, spans, first=self._config.inner)
        state = state.write(layer, 0, inputs)
        steps, decay = nn.op.tensor_expr_op(self._steps, "steps", [projected, self.dt_bias, self.A_log])
        states = state.read(layer, 1, self._vectors[1], spans.sequences)
        y, states = scan_states(self._scan, packed, decay, steps, states, spans)
        state = state.write(layer, 1, states)
        gated = nn.op.tensor_expr_op(self._gated, "gate", [y, packed, projected, self.D])
        squares = nn.op.tensor_expr_op(self._squares, "squares", [gated])
        normed = nn.op.tensor_expr_op(self._normed, "norm", [gated, squares, self.norm.weight])
        return self.out_proj(nn.op.reshape(normed, (batch, length, self._config.inner))), state

    def _steps(self, projected: te.Tensor, bias: te.Tensor, a_log: te.Tensor) -> list[te.Tensor]:
        """The step of each token and head, and e^(step A), by which the state decays: (tokens, heads), float32."""
        config = self._config
        first = config.inner + config.channels

        def step(token: tirx.Var, head: tirx.Var) -> tirx.Expr:
            value = softplus(projected[token, first + head].astype("float32") + bias[head])
            value = tirx.max(value, tirx.const(config.least_step, "float32"))
            return value if config.most_step is None else tirx.min(value, tirx.const(config.most_step, "float32"))

        shape = (projected.shape[0], config.heads)
        return [
            te.compute(shape, step, name="steps"),
            te.compute(shape, lambda t, h: tirx.exp(-tirx.exp(a_log[h]) * step(t, h)), name="decay"),
        ]

    def _gated(self, y: te.Tensor, packed: te.Tensor, projected: te.Tensor, skip: te.Tensor) -> te.Tensor:
        """(y + D x) silu(gate): (tokens, inner), float32."""

        def element(token: tirx.Var, place: tirx.Var) -> tirx.Expr:
            z = projected[token, place].astype("float32")
            value = packed[token, place].astype("float32")
            return (y[token, place] + skip[place // self._config.head_dim] * value) * z * tirx.sigmoid(z)

        return te.compute(y.shape, element, name="gated")

    def _squares(self, gated: te.Tensor) -> te.Tensor:
        """The sums of squares of groups: (tokens, groups)."""
        size = self._config.inner // self._config.groups
        k = te.reduce_axis((0, size), "k")
        return te.compute(
            (gated.shape[0], self._config.groups),
            lambda token, group: te.sum(gated[token, group * size + k] * gated[token, group * size + k], axis=k),
            name="squares",
        )

    def _normed(self, gated: te.Tensor, squares: te.Tensor, weight: te.Tensor) -> te.Tensor:
        size = self._config.inner // self._config.groups

        def element(token: tirx.Var, place: tirx.Var) -> tirx.Expr:
            mean = squares[token, place // size] / tirx.const(size, "float32")
            factor = tirx.rsqrt(mean + tirx.const(self._config.norm_epsilon, "float32"))
            return (gated[token, place] * factor * weight[place].astype("float32")).astype(self._dtype)

        return te.compute(gated.shape, element, name="normed")
