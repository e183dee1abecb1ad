"""The module of a mixture of experts.

A batch's rows, a token's choices each, are put into the order of their experts, so that kernels read the matrix of an
expert once for all its rows, and no other expert's. One token alone needs no order.
"""

from __future__ import annotations

import functools

from tvm import te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.models.architecture.decoder import FeedForwardConfig
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.mixture import ClampedGate, MixtureConfig
from mlcbuild.compiler.models.layers import routing
from mlcbuild.compiler.models.layers.feed_forward import ACTIVATIONS, FeedForward
from mlcbuild.compiler.models.layers.known_sizes import is_one
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.layers import Experts, Linear
from mlcbuild.compiler.quantization.reader import Reader

_OPAQUE = 8  # TVM's number of kernels that fusion leaves alone


class Correction(nn.Module):  # type: ignore[misc]
    """What is added to the scores of experts to choose by: `bias` (experts,) float32."""

    def __init__(self, experts: int) -> None:
        self.bias = nn.Parameter((experts,), "float32")


class Router(Linear):
    """The product whose results are the experts' logits, which is not quantized."""

    def __init__(self, config: MixtureConfig, hidden_size: int, reader: Reader, *, name: str) -> None:
        super().__init__(
            hidden_size,
            config.experts,
            reader=reader,
            name=name,
            bias=config.router.bias,
            role=ParameterRole.ROUTER,
        )


class Mixture:
    """The mixture of the layer called `layer`. `modules` are its modules and parameters by their names below the
    layer."""

    def __init__(self, config: MixtureConfig, hidden_size: int, reader: Reader, *, layer: str) -> None:
        names, inner = config.names, config.intermediate_size
        self.config = config
        self.dtype = reader.scheme.model_dtype
        self.activation = ACTIVATIONS[config.activation]
        self.router = Router(config, hidden_size, reader, name=f"{layer}.{names.router}")
        shape = (config.experts, 2 * inner, hidden_size)
        self.gate_up = Experts(shape, reader=reader, name=f"{layer}.{names.gate_up}")
        shape = (config.experts, hidden_size, inner)
        self.down = Experts(shape, reader=reader, name=f"{layer}.{names.down}")
        if config.bias:
            self.gate_up.bias = nn.Parameter((config.experts, 2 * inner), self.dtype)
            self.down.bias = nn.Parameter((config.experts, hidden_size), self.dtype)
        self.modules: dict[str, nn.Module | nn.Parameter] = {
            names.router: self.router,
            names.gate_up: self.gate_up,
            names.down: self.down,
        }
        self.correction = Correction(config.experts) if config.router.correction_bias else None
        if self.correction is not None:
            self.modules[names.correction_bias] = self.correction.bias
        self.shared: FeedForward | None = None
        self.shared_gate: nn.Module | None = None
        if config.shared is not None:
            shared = FeedForwardConfig(intermediate_size=config.shared.intermediate_size, activation=config.activation)
            own = DecoderNames(gate_up=f"{names.shared}.gate_up_proj", down=f"{names.shared}.down_proj")
            self.shared = FeedForward(shared, own, hidden_size, reader, layer=layer)
            self.modules |= self.shared.modules
            if config.shared.gated:
                name = f"{layer}.{names.shared_gate}"
                self.shared_gate = Linear(hidden_size, 1, reader=reader, name=name, role=ParameterRole.ROUTER)
                self.modules[names.shared_gate] = self.shared_gate

    @property
    def parts(self) -> list[nn.Module]:
        """What has the parameters that a call reads."""
        modules = [part for part in self.modules.values() if isinstance(part, nn.Module)]
        return modules if self.correction is None else [*modules, self.correction]

    def __call__(self, hidden: nn.Tensor) -> nn.Tensor:
        """(batch, n, hidden) → the same."""
        batch, length, size = hidden.shape
        tokens = nn.op.reshape(hidden, (batch * length, size))
        result = self._experts(tokens)
        if self.shared is not None:
            shared = self.shared(tokens)
            if self.shared_gate is not None:
                shared = nn.op.sigmoid(self.shared_gate(tokens)) * shared
            result = result + shared
        return nn.op.reshape(result, (batch, length, size))

    def _experts(self, tokens: nn.Tensor) -> nn.Tensor:
        """(tokens, hidden) → the same."""
        correction = None if self.correction is None else self.correction.bias
        choice = routing.choose(self.router(tokens, "float32"), correction, self.config)
        if is_one(tokens.shape[0]):
            order, experts, numbers = None, choice.experts, []
        else:
            order = routing.ordered(choice.experts, self.config)
            experts, numbers = order.experts, [order.numbers]
        inner = _product(self.gate_up, tokens, experts, *numbers)
        if self.config.weighs_input:
            inner = nn.op.tensor_expr_op(_weighed, "weigh_rows", [inner, choice.weights, *numbers])
        if self.config.bias:
            inner = nn.op.tensor_expr_op(_biased, "add_bias_of_experts", [inner, self.gate_up.bias, experts])
        rows = _product(self.down, self._gated(inner), experts)
        if self.config.bias:
            rows = nn.op.tensor_expr_op(_biased, "add_bias_of_experts", [rows, self.down.bias, experts])
        weights = [] if self.config.weighs_input else [choice.weights]
        places = [] if order is None else [order.places]

        def total(rows: te.Tensor, *given: te.Tensor) -> te.Tensor:
            return sum_of_choices(rows, given[0] if weights else None, given[-1] if places else None, dtype=self.dtype)

        return nn.op.tensor_expr_op(total, "sum_of_experts", [rows, *weights, *places])

    def _gated(self, inner: nn.Tensor) -> nn.Tensor:
        """Gate and up (tokens, choices, 2 n) → (tokens, choices, n)."""
        if self.config.clamped is not None:
            return nn.op.tensor_expr_op(functools.partial(_clamped, gate=self.config.clamped), "clamped_gate", [inner])
        gate, up = nn.op.split(inner, 2, axis=-1)
        return self.activation(gate) * up


def _clamped(rows: te.Tensor, gate: ClampedGate) -> te.Tensor:
    """What `ClampedGate` says, in float32."""
    size, limit = rows.shape[2] // 2, tirx.const(gate.limit, "float32")

    def element(token: tirx.Var, choice: tirx.Var, n: tirx.Var) -> tirx.Expr:
        g, u = (rows[token, choice, place].astype("float32") for place in (n, n + size))
        g, u = tirx.min(g, limit), tirx.max(tirx.min(u, limit), -limit)
        return (g * tirx.sigmoid(g * tirx.const(gate.alpha, "float32")) * (u + 1)).astype(rows.dtype)

    return te.compute((*rows.shape[:2], size), element, name="clamped_gate")


def _biased(rows: te.Tensor, bias: te.Tensor, experts: te.Tensor) -> te.Tensor:
    """Rows (tokens, choices, n) plus the vectors (experts, n) of their experts."""

    def element(token: tirx.Var, choice: tirx.Var, n: tirx.Var) -> tirx.Expr:
        return rows[token, choice, n] + bias[experts[token, choice].astype("int64"), n]

    return te.compute(rows.shape, element, name="biased")


def _product(matrices: Experts, x: nn.Tensor, experts: nn.Tensor, *numbers: nn.Tensor) -> nn.Tensor:
    """Rows times the matrices of their `experts` (tokens, choices): (tokens, choices, out). x has such rows
    (tokens, choices, in), or it has tokens (tokens, in), of which `numbers` tell the choices."""
    x = matrices.activations(x)
    return nn.op.tensor_expr_op(
        expert_product, "expert_matmul", [x, experts, matrices.restored(), *numbers], attrs={"op_pattern": _OPAQUE}
    )


def row_product(rows: nn.Tensor, matrices: nn.Tensor) -> nn.Tensor:
    """Rows (experts · n, 1, in), n of each expert after the other, times its matrix (experts, out, in): (experts · n,
    1, out)."""
    experts = matrices.shape[0]

    def numbers(x: te.Tensor) -> te.Tensor:
        each = tirx.floordiv(x.shape[0], experts)
        return te.compute((x.shape[0], 1), lambda row, _: tirx.floordiv(row, each).astype("int32"), name="experts")

    which = nn.op.tensor_expr_op(numbers, "experts_of_rows", [rows])
    return nn.op.tensor_expr_op(expert_product, "expert_matmul", [rows, which, matrices], attrs={"op_pattern": _OPAQUE})


def expert_product(x: te.Tensor, experts: te.Tensor, matrices: te.Tensor, *numbers: te.Tensor) -> te.Tensor:
    """The product that `kernels.expert_product` knows, of x's dtype, with sums of it."""
    tokens, choices = experts.shape
    k = te.reduce_axis((0, matrices.shape[2]), "k")

    def element(token: tirx.Var, choice: tirx.Var, n: tirx.Var) -> tirx.Expr:
        if x.ndim == 3:
            value = x[token, choice, k]
        elif numbers:
            value = x[tirx.floordiv(numbers[0][token, choice].astype("int64"), choices), k]
        else:
            value = x[token, k]
        return te.sum(value * matrices[experts[token, choice].astype("int64"), n, k], axis=k)

    return te.compute((tokens, choices, matrices.shape[1]), element, name="expert_matmul")


def _weighed(rows: te.Tensor, weights: te.Tensor, *numbers: te.Tensor) -> te.Tensor:
    """Rows (tokens, choices, n) times the weights of their choices."""
    choices = rows.shape[1]

    def element(token: tirx.Var, choice: tirx.Var, n: tirx.Var) -> tirx.Expr:
        weight = weights[token, choice]
        if numbers:
            number = numbers[0][token, choice].astype("int64")
            weight = weights[tirx.floordiv(number, choices), tirx.floormod(number, choices)]
        return (rows[token, choice, n].astype("float32") * weight).astype(rows.dtype)

    return te.compute(rows.shape, element, name="weighed")


def sum_of_choices(rows: te.Tensor, weights: te.Tensor | None, places: te.Tensor | None, *, dtype: str) -> te.Tensor:
    """(tokens, choices, n) → (tokens, n): each token's rows, which lie at `places`, times their weights."""
    tokens, choices, size = rows.shape
    choice = te.reduce_axis((0, choices), "choice")

    def element(token: tirx.Var, n: tirx.Var) -> tirx.Expr:
        at = token, choice
        if places is not None:
            place = places[token, choice].astype("int64")
            at = tirx.floordiv(place, choices), tirx.floormod(place, choices)
        row = rows[(*at, n)].astype("float32")
        return te.sum(row if weights is None else row * weights[token, choice], axis=choice)

    total = te.compute((tokens, size), element, name="sum_of_experts")
    return total if dtype == "float32" else te.compute(total.shape, lambda t, n: total[t, n].astype(dtype), name="cast")
