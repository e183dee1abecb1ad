"""Mixtures of experts in every n-th layer, whose chosen experts are given their input times its weight: the fields that
Llama 4's configurations have for them."""

from __future__ import annotations

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig
from mlcbuild.compiler.models.architecture.mixture import (
    MixtureConfig,
    MixtureNames,
    RouterConfig,
    RouterScores,
    SharedExperts,
    read_experts,
)
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.mixture_layers import with_mixture

_DEFAULTS: dict[str, object] = {"num_local_experts": 16, "num_experts_per_tok": 1, "intermediate_size": 8192}


def with_interleaved_mixture(reader: ConfigReader, config: DecoderConfig, names: MixtureNames) -> DecoderConfig:
    """The decoder with experts, one of which all tokens use, in these layers; in the others its feed-forward stays,
    whose size `config` has. All may be without."""
    reader = reader.with_defaults(**_DEFAULTS)
    experts, chosen = read_experts(reader, "num_local_experts")
    inner = reader.integer("intermediate_size", low=1, high=1 << 20)
    mixture = MixtureConfig(
        experts=experts,
        experts_per_token=chosen,
        intermediate_size=inner,
        activation=config.feed_forward.activation,
        router=RouterConfig(scores=RouterScores.SIGMOID),
        shared=SharedExperts(intermediate_size=inner),
        weighs_input=True,
        names=names,
    )
    dense = _dense_layers(reader, config.num_layers)
    return config if len(dense) == config.num_layers else with_mixture(config, mixture, dense=dense)


def _dense_layers(reader: ConfigReader, layers: int) -> list[int]:
    """Which layers have no experts: those that `moe_layers` does not list, else all but every
    `interleave_moe_layer_step`-th."""
    step = reader.integer("interleave_moe_layer_step", low=1, high=1 << 12, default=1)
    listed = reader.value("moe_layers")
    if listed is None:
        listed = list(range(step - 1, layers, step))
    if not isinstance(listed, list) or not all(type(number) is int for number in listed):
        raise reader.fail("moe_layers", "has to be a list of numbers of layers")
    return [number for number in range(layers) if number not in listed]
