"""A layer of the gated delta rule: products, a short convolution, the recurrence, a norm that is gated, and a product.

S. Yang, J. Kautz and A. Hatamizadeh, "Gated Delta Networks" (2024), section 3.
"""

from __future__ import annotations

from tvm import relax, te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.kernels.state_scan import StateScan
from mlcbuild.compiler.models.architecture.recurrence import DeltaRuleConfig
from mlcbuild.compiler.models.caches.recurrent_state import RecurrentState, StateVector
from mlcbuild.compiler.models.layers.scanning import scan_states, softplus
from mlcbuild.compiler.models.layers.short_convolution import convolve
from mlcbuild.compiler.models.layers.spans import Spans
from mlcbuild.compiler.models.layers.state_space import Weighted
from mlcbuild.compiler.quantization.layers import Linear
from mlcbuild.compiler.quantization.reader import Reader

_EPSILON = 1e-6  # of keys' and queries' length, as in the authors' kernels and in transformers


class DeltaRule(nn.Module):  # type: ignore[misc]
    """The module called `name`. Keys and queries are convolved with the values, and get the length 1."""

    def __init__(self, config: DeltaRuleConfig, hidden_size: int, reader: Reader, *, name: str) -> None:
        dtype = reader.scheme.model_dtype
        self._config = config
        self._dtype = dtype
        rows = {"qkv": config.channels, "z": config.inner, "b": config.heads, "a": config.heads}
        if config.fused:
            rows = {"qkvz": config.channels + config.inner, "ba": 2 * config.heads}
        self._names = tuple(f"in_proj_{part}" for part in rows)
        for own_name, size in zip(self._names, rows.values(), strict=True):
            setattr(self, own_name, Linear(hidden_size, size, reader=reader, name=f"{name}.{own_name}"))
        self.conv1d_weight = nn.Parameter((config.channels, 1, config.convolution), dtype)
        self.dt_bias = nn.Parameter((config.heads,), "float32")
        self.A_log = nn.Parameter((config.heads,), "float32")
        self.norm = Weighted(config.value_dim, dtype=dtype)
        self.out_proj = Linear(config.inner, hidden_size, reader=reader, name=f"{name}.out_proj")
        convolved, recurrent = config.state_sizes
        self._vectors = StateVector(size=convolved, dtype=dtype), StateVector(size=recurrent, dtype="float32")
        self._scan = StateScan(
            heads=config.heads,
            rows=config.value_dim,
            groups=config.key_heads,
            columns=config.key_dim,
            value_at=2 * config.keys,
            key_at=config.keys,
            query_at=0,
            channels=config.channels,
            delta=True,
            dtype="float32",
        )

    @property
    def vectors(self) -> tuple[StateVector, ...]:
        """The states that the layer keeps for a sequence."""
        return self._vectors

    def forward(
        self, hidden: nn.Tensor, state: RecurrentState, layer: relax.Expr, spans: Spans
    ) -> tuple[nn.Tensor, RecurrentState]:
        """(a, n, hidden) → the same, and the state behind it, at the layer of a number."""
        config = self._config
        batch, length, _ = hidden.shape
        made = [getattr(self, own_name)(hidden) for own_name in self._names]
        made = [nn.op.reshape(each, (batch * length, each.shape[-1])) for each in made]
        # Each of the four parts is a matrix, and where in it the part begins.
        if config.fused:
            qkv, gates, steps, decays = (made[0], 0), (made[0], config.channels), (made[1], 0), (made[1], config.heads)
        else:
            qkv, gates, steps, decays = ((each, 0) for each in made)
        inputs = state.read(layer, 0, self._vectors[0], spans.sequences)
        packed, inputs = convolve(qkv[0], inputs, self.conv1d_weight, None, spans)
        state = state.write(layer, 0, inputs)
        squares = nn.op.tensor_expr_op(self._squares, "squares", [packed])
        packed = nn.op.tensor_expr_op(self._of_length_one, "of_length_one", [packed, squares])
        rate = nn.op.tensor_expr_op(self._rate, "rate", [steps[0]])
        decay = nn.op.tensor_expr_op(
            lambda a, bias, a_log: self._decay(a, bias, a_log, decays[1]),
            "decay",
            [decays[0], self.dt_bias, self.A_log],
        )
        states = state.read(layer, 1, self._vectors[1], spans.sequences)
        y, states = scan_states(self._scan, packed, decay, rate, states, spans)
        state = state.write(layer, 1, states)
        lengths = nn.op.tensor_expr_op(self._squares_of_heads, "squares", [y])
        gated = nn.op.tensor_expr_op(
            lambda y, squares, z, weight: self._gated(y, squares, z, weight, gates[1]),
            "norm_and_gate",
            [y, lengths, gates[0], self.norm.weight],
        )
        return self.out_proj(nn.op.reshape(gated, (batch, length, config.inner))), state

    def _squares(self, packed: te.Tensor) -> te.Tensor:
        """The squares of the lengths of queries and keys: (tokens, 2 key heads)."""
        size = self._config.key_dim
        return _sums_of_squares(packed, heads=2 * self._config.key_heads, size=size)

    def _squares_of_heads(self, y: te.Tensor) -> te.Tensor:
        return _sums_of_squares(y, heads=self._config.heads, size=self._config.value_dim)

    def _of_length_one(self, packed: te.Tensor, squares: te.Tensor) -> te.Tensor:
        """Queries, divided by √key_dim as well, keys, and the values as they are: (tokens, channels), float32."""
        keys, size = self._config.keys, self._config.key_dim

        def element(token: tirx.Var, place: tirx.Var) -> tirx.Expr:
            value = packed[token, place].astype("float32")
            head = tirx.min(place, 2 * keys - 1) // size
            length = tirx.rsqrt(squares[token, head] + tirx.const(_EPSILON, "float32"))
            scale = tirx.if_then_else(place < keys, tirx.const(size**-0.5, "float32"), tirx.const(1, "float32"))
            return tirx.if_then_else(place < 2 * keys, value * length * scale, value)

        return te.compute(packed.shape, element, name="of_length_one")

    def _rate(self, given: te.Tensor) -> te.Tensor:
        shape = (given.shape[0], self._config.heads)
        return te.compute(shape, lambda t, h: tirx.sigmoid(given[t, h].astype("float32")), name="rate")

    def _decay(self, given: te.Tensor, bias: te.Tensor, a_log: te.Tensor, first: int) -> te.Tensor:
        """e^(-A softplus(a + bias)): (tokens, heads), float32."""

        def element(token: tirx.Var, head: tirx.Var) -> tirx.Expr:
            step = softplus(given[token, first + head].astype("float32") + bias[head])
            return tirx.exp(-tirx.exp(a_log[head]) * step)

        return te.compute((given.shape[0], self._config.heads), element, name="decay")

    def _gated(self, y: te.Tensor, squares: te.Tensor, z: te.Tensor, weight: te.Tensor, first: int) -> te.Tensor:
        """The norm of each head, times silu of the gates: (tokens, inner)."""
        size = self._config.value_dim

        def element(token: tirx.Var, place: tirx.Var) -> tirx.Expr:
            mean = squares[token, place // size] / tirx.const(size, "float32")
            factor = tirx.rsqrt(mean + tirx.const(self._config.norm_epsilon, "float32"))
            gate = z[token, first + place].astype("float32")
            normed = y[token, place] * factor * weight[place % size].astype("float32")
            return (normed * gate * tirx.sigmoid(gate)).astype(self._dtype)

        return te.compute(y.shape, element, name="gated")


def _sums_of_squares(x: te.Tensor, *, heads: int, size: int) -> te.Tensor:
    """Of the first `heads` vectors of a size in each row: (rows, heads), float32."""
    k = te.reduce_axis((0, size), "k")

    def element(row: tirx.Var, head: tirx.Var) -> tirx.Expr:
        value = x[row, head * size + k].astype("float32")
        return te.sum(value * value, axis=k)

    return te.compute((x.shape[0], heads), element, name="squares")
