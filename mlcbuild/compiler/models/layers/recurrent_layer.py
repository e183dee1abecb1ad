"""A layer of a recurrence, and a feed-forward where a model has one, each with a norm before it, added to the hidden
state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tvm import relax
from tvm.relax.frontend import nn

from mlcbuild.compiler.models.architecture.decoder import FeedForwardConfig, NormConfig
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.mixture import MixtureConfig
from mlcbuild.compiler.models.architecture.recurrence import DeltaRuleConfig, Recurrence, StateSpaceConfig
from mlcbuild.compiler.models.caches.recurrent_state import RecurrentState, StateVector
from mlcbuild.compiler.models.layers.delta_rule import DeltaRule
from mlcbuild.compiler.models.layers.experts import Mixture
from mlcbuild.compiler.models.layers.feed_forward import FeedForward
from mlcbuild.compiler.models.layers.norm import make_norm
from mlcbuild.compiler.models.layers.placing import place
from mlcbuild.compiler.models.layers.spans import Spans
from mlcbuild.compiler.models.layers.state_space import StateSpace
from mlcbuild.compiler.quantization.reader import Reader

MODULES: Mapping[type, Callable[..., StateSpace | DeltaRule]] = {
    StateSpaceConfig: StateSpace,
    DeltaRuleConfig: DeltaRule,
}
"""The module of each kind of recurrence."""


class RecurrentLayerConfig(Protocol):
    """What a layer is built from: a `decoder.DecoderConfig` of a recurrent layer, or a `RecurrentModelConfig`."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def norm(self) -> NormConfig: ...
    @property
    def names(self) -> DecoderNames: ...
    @property
    def recurrence(self) -> Recurrence | None: ...
    @property
    def residual_scale(self) -> float: ...
    @property
    def feed_forward(self) -> FeedForwardConfig | MixtureConfig | None: ...


class RecurrentLayer(nn.Module):  # type: ignore[misc]
    """The layer called `name`. As a `DecoderLayer`, it is computed from its own first norm to the next layer's."""

    def __init__(self, config: RecurrentLayerConfig, reader: Reader, *, name: str) -> None:
        names, hidden, dtype = config.names, config.hidden_size, reader.scheme.model_dtype
        self._residual_scale = config.residual_scale
        assert config.recurrence is not None
        made = MODULES[type(config.recurrence)]
        recurrence = made(config.recurrence, hidden, reader, name=f"{name}.{names.recurrence}")
        first, second = make_norm(config.norm, hidden, dtype=dtype), None
        self._feed_forward: FeedForward | Mixture | None = None
        modules = {names.attention_norm: first, names.recurrence: recurrence}
        if config.feed_forward is not None:
            if isinstance(config.feed_forward, MixtureConfig):
                self._feed_forward = Mixture(config.feed_forward, hidden, reader, layer=name)
            else:
                self._feed_forward = FeedForward(config.feed_forward, names, hidden, reader, layer=name)
            second = make_norm(config.norm, hidden, dtype=dtype)
            modules |= {names.feed_forward_norm: second, **self._feed_forward.modules}
        self._own = (first, recurrence, second)  # a tuple: attributes that are modules have the names of parameters
        for own_name, module in modules.items():
            place(self, own_name, module)

    @property
    def vectors(self) -> tuple[StateVector, ...]:
        """The states that the layer keeps for a sequence."""
        found: tuple[StateVector, ...] = self._own[1].vectors
        return found

    @property
    def first_norm(self) -> nn.Module:
        return self._own[0]

    @property
    def of_positions(self) -> tuple[()]:
        """Nothing: a state has no positions."""
        return ()

    def forward(
        self,
        hidden: nn.Tensor,
        normed: nn.Tensor,
        state: RecurrentState,
        layer: relax.Expr,
        next_norm: nn.Module | None,
        spans: Spans,
    ) -> tuple[nn.Tensor, nn.Tensor, RecurrentState]:
        """The hidden state behind this layer, its norm, and the states; `normed` is the hidden state's before."""
        _, recurrence, second = self._own
        added, state = recurrence(normed, state, layer, spans)
        hidden = self._scaled(added) + hidden
        if self._feed_forward is not None and second is not None:
            hidden = self._scaled(self._feed_forward(second(hidden))) + hidden
        return hidden, hidden if next_norm is None else next_norm(hidden), state

    def _scaled(self, x: nn.Tensor) -> nn.Tensor:
        return x if self._residual_scale == 1.0 else x * self._residual_scale

    def parts(self, next_norm: nn.Module | None, *, single: bool) -> list[nn.Module]:  # noqa: ARG002
        """What has the parameters that `forward` reads, as of `DecoderLayer`."""
        _, recurrence, second = self._own
        inner = [] if self._feed_forward is None else [second, *self._feed_forward.parts]
        return [part for part in (recurrence, *inner, next_norm) if part is not None]
