"""Which inputs of a decoder's matrices can be scaled (`smoothing`), from its wiring and its names.

- What a norm makes, if it has a weight, for all matrices that read it: queries, keys and values, a recurrence's first
  products, gate and up; of a mixture, the router and what gates shared experts too. A norm behind attention or
  feed-forward is read by the sum of a layer, and has no scale.
- What attention makes of values, for the last product: rows of values absorb it, and query heads that share a head of
  values share its scales. Not where values are cut (`qkv_clip`), and not of latent attention, whose values MLC-LLM has
  twice.
- What a recurrence's gated norm makes, for its last product.
- What the feed-forward has inside, for down: rows of up absorb it where a gate multiplies them, or where the activation
  is one of relu's, which a positive factor goes through. Not where what is inside is cut (`ClampedGate`).

The last norm, before the head, is left as it is: what it makes leaves the model as its hidden states.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mlcbuild.compiler.models.architecture.activation import Activation
from mlcbuild.compiler.models.architecture.decoder import AttentionConfig, DecoderConfig, NormConfig, Wiring
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.latent import LATENT_NAMES
from mlcbuild.compiler.models.architecture.mixture import MixtureConfig
from mlcbuild.compiler.models.architecture.recurrence import DeltaRuleConfig, Recurrence, StateSpaceConfig
from mlcbuild.compiler.models.architecture.recurrent_model import RecurrentModelConfig
from mlcbuild.compiler.models.checkpoints.smoothing import Absorber, SmoothedInput

_DEGREES = {Activation.RELU: 1, Activation.RELU_SQUARED: 2}


def smoothed_inputs(config: DecoderConfig) -> tuple[SmoothedInput, ...]:
    """Those of all layers, in their order."""
    return tuple(
        found
        for number in range(config.num_layers)
        for found in _of_layer(config.of_layer(number), _Layer(f"{config.names.layers}.{number}"))
    )


def smoothed_inputs_of_recurrences(config: RecurrentModelConfig) -> tuple[SmoothedInput, ...]:
    """Those of a model whose layers are recurrences alone."""
    names = config.names
    found: list[SmoothedInput] = []
    for number in range(config.num_layers):
        layer = _Layer(f"{names.layers}.{number}")
        readers = _recurrence_readers(config.recurrence, names)
        found += layer.normed(names.attention_norm, config.norm, readers, config.hidden_size)
        found += _inside_recurrence(config.recurrence, names, layer)
    return tuple(found)


class _Layer(NamedTuple):
    name: str

    def weights(self, *modules: str) -> tuple[str, ...]:
        return tuple(f"{self.name}.{module}.weight" for module in modules)

    def absorbers(self, module: str, *, begin: int = 0, bias: bool = False) -> tuple[Absorber, ...]:
        kinds = ("weight", "bias") if bias else ("weight",)
        return tuple(Absorber(parameter=f"{self.name}.{module}.{kind}", begin=begin) for kind in kinds)

    def normed(self, norm: str, config: NormConfig, readers: list[str], size: int) -> Iterator[SmoothedInput]:
        """What a norm makes, if it has a weight."""
        if config.weight:
            absorbed_by = self.absorbers(norm, bias=config.bias)
            yield SmoothedInput(matrices=self.weights(*readers), absorbed_by=absorbed_by, channels=size)


def _of_layer(config: DecoderConfig, layer: _Layer) -> Iterator[SmoothedInput]:
    names, wiring = config.names, config.wiring
    first = _attention_readers(config.attention, names)
    if config.recurrence is not None:
        first = _recurrence_readers(config.recurrence, names)
    second = _feed_forward_readers(config)
    if wiring is Wiring.PARALLEL_ONE_NORM:
        yield from layer.normed(names.attention_norm, config.norm, [*first, *second], config.hidden_size)
    elif wiring is not Wiring.NORM_AFTER:
        yield from layer.normed(names.attention_norm, config.norm, first, config.hidden_size)
    if config.recurrence is not None:
        yield from _inside_recurrence(config.recurrence, names, layer)
    else:
        yield from _inside_attention(config.attention, names, layer)
    if wiring not in (Wiring.PARALLEL_ONE_NORM, Wiring.NORM_AFTER):
        yield from layer.normed(names.feed_forward_norm, config.norm, second, config.hidden_size)
    yield from _inside_feed_forward(config, layer)


def _attention_readers(config: AttentionConfig, names: DecoderNames) -> list[str]:
    if config.latent is None:
        return list(names.apart or (names.qkv,))
    return [LATENT_NAMES.query_down if config.latent.query_rank else LATENT_NAMES.query, LATENT_NAMES.down]


def _inside_attention(config: AttentionConfig, names: DecoderNames, layer: _Layer) -> Iterator[SmoothedInput]:
    if config.latent is not None:
        rank = config.latent.query_rank
        if rank:
            norm = NormConfig(epsilon=config.latent.epsilon)
            yield from layer.normed(LATENT_NAMES.query_norm, norm, [LATENT_NAMES.query_up], rank)
        return
    if config.qkv_clip:
        return
    values, begin = names.apart[2] if names.apart else names.qkv, 0
    if not names.apart:
        queries = config.query_heads * (2 if config.output_gate else 1)
        begin = (queries + config.key_value_heads) * config.head_dim
    yield SmoothedInput(
        matrices=layer.weights(names.output),
        absorbed_by=layer.absorbers(values, begin=begin, bias=config.qkv_bias),
        channels=config.key_value_heads * config.head_dim,
        width=config.head_dim,
        repeats=config.query_heads // config.key_value_heads,
    )


def _recurrence_readers(config: Recurrence, names: DecoderNames) -> list[str]:
    if isinstance(config, StateSpaceConfig):
        parts: tuple[str, ...] = ("in_proj",)
    else:
        parts = (
            ("in_proj_qkvz", "in_proj_ba")
            if config.fused
            else tuple(f"in_proj_{part}" for part in ["qkv", "z", "b", "a"])
        )
    return [f"{names.recurrence}.{part}" for part in parts]


def _inside_recurrence(config: Recurrence, names: DecoderNames, layer: _Layer) -> Iterator[SmoothedInput]:
    """The gated norm of a state space has a weight for each element, that of a delta rule one for each of a head's."""
    heads = config.heads if isinstance(config, DeltaRuleConfig) else 1
    channels = config.value_dim if isinstance(config, DeltaRuleConfig) else config.inner
    yield SmoothedInput(
        matrices=layer.weights(f"{names.recurrence}.out_proj"),
        absorbed_by=layer.absorbers(f"{names.recurrence}.norm"),
        channels=channels,
        width=channels,
        repeats=heads,
    )


def _feed_forward_readers(config: DecoderConfig) -> list[str]:
    feed_forward, names = config.feed_forward, config.names
    if not isinstance(feed_forward, MixtureConfig):
        if not feed_forward.gated:
            return [names.up]
        return [names.gate, names.up] if names.gate else [names.gate_up]
    own, shared = feed_forward.names, feed_forward.shared
    found = [own.router, own.gate_up]
    if shared is not None:
        found += [f"{own.shared}.gate_up_proj", *([own.shared_gate] if shared.gated else [])]
    return found


def _inside_feed_forward(config: DecoderConfig, layer: _Layer) -> Iterator[SmoothedInput]:
    feed_forward, names = config.feed_forward, config.names

    def inside(down: str, up: str, channels: int, *, begin: int, bias: bool = False, degree: int = 1) -> SmoothedInput:
        return SmoothedInput(
            matrices=layer.weights(down),
            absorbed_by=layer.absorbers(up, begin=begin, bias=bias),
            channels=channels,
            degree=degree,
        )

    if isinstance(feed_forward, MixtureConfig):
        own, inner, shared = feed_forward.names, feed_forward.intermediate_size, feed_forward.shared
        if feed_forward.clamped is None:
            yield inside(own.down, own.gate_up, inner, begin=inner, bias=feed_forward.bias)
        if shared is not None:
            size = shared.intermediate_size
            yield inside(f"{own.shared}.down_proj", f"{own.shared}.gate_up_proj", size, begin=size)
        return
    inner, bias = feed_forward.intermediate_size, feed_forward.bias
    if feed_forward.gated:
        together = not names.gate
        begin = inner if together and not feed_forward.up_first else 0
        yield inside(names.down, names.gate_up if together else names.up, inner, begin=begin, bias=bias)
    elif feed_forward.activation in _DEGREES:
        yield inside(names.down, names.up, inner, begin=0, bias=bias, degree=_DEGREES[feed_forward.activation])
