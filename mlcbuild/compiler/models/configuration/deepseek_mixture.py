"""The fields of a `config.json` that tell of experts, by the names that DeepSeek's models have: some for all tokens,
and first layers without any."""

from __future__ import annotations

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig
from mlcbuild.compiler.models.architecture.mixture import (
    MixtureConfig,
    MixtureNames,
    RouterConfig,
    SharedExperts,
)
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.mixture_layers import with_mixture

_NAMES = MixtureNames(shared="mlp.shared_experts")


def with_mixture_of_deepseek(
    reader: ConfigReader, config: DecoderConfig, router: RouterConfig, *, counts: tuple[int, int]
) -> tuple[DecoderConfig, dict[str, object]]:
    """The decoder with experts, `counts` of which there are and a token uses, and what a `model_config` says of them.
    Layers before `first_k_dense_replace` have none, nor those whose number `moe_layer_freq` does not divide."""
    experts, chosen = counts
    shared = reader.integer("n_shared_experts", low=1, high=64) if reader.has("n_shared_experts") else 0
    inner = reader.integer("moe_intermediate_size", low=1, high=1 << 20)
    mixture = MixtureConfig(
        experts=experts,
        experts_per_token=chosen,
        intermediate_size=inner,
        activation=config.feed_forward.activation,
        router=router,
        shared=SharedExperts(intermediate_size=shared * inner) if shared else None,
        names=_NAMES,
    )
    first = reader.integer("first_k_dense_replace", low=0, high=config.num_layers - 1, default=0)
    every = reader.integer("moe_layer_freq", low=1, high=1 << 12, default=1)
    own: dict[str, object] = {
        "intermediate_size": config.feed_forward.intermediate_size,
        "moe_intermediate_size": inner,
        "n_shared_experts": shared or None,
        "n_routed_experts": experts,
        "num_experts_per_tok": chosen,
        "first_k_dense_replace": first,
        "moe_layer_freq": every,
    }
    dense = [number for number in range(config.num_layers) if number < first or number % every]
    return with_mixture(config, mixture, dense=dense), own
