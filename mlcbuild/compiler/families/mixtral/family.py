"""Mixtral: a mistral whose feed-forwards are mixtures of experts.

Defaults are those of transformers' `MixtralConfig`.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder, read_window
from mlcbuild.compiler.models.architecture.mixture import MixtureConfig, MixtureNames, RouterConfig, read_experts
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, ExpertNames
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel

_DEFAULTS: dict[str, object] = {
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e6,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
_NAMES = MixtureNames(router="moe.gate", gate_up="moe.e1_e3", down="moe.e2")
_LAYOUT = CheckpointLayout(
    experts=ExpertNames(module="block_sparse_moe", gate="w1", up="w3", down="w2"), gguf_interleaves=True
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    config = read_decoder(reader)
    experts, chosen = read_experts(reader)
    mixture = MixtureConfig(
        experts=experts,
        experts_per_token=chosen,
        intermediate_size=config.feed_forward.intermediate_size,
        activation=config.feed_forward.activation,
        router=RouterConfig(normalized=True),
        names=_NAMES,
    )
    own: dict[str, object] = {"num_local_experts": experts, "num_experts_per_tok": chosen}
    if reader.has("sliding_window"):
        own |= {"sliding_window_size": None, "attention_sink_size": None}
    config = replace(config, feed_forward=mixture)
    return decoder_model(reader, config, _LAYOUT, limits=read_window(reader), own=own)


FAMILY = Family(
    name="mixtral",
    models="Mixtral",
    model_types=("mixtral",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf_names={"mixtral": "llama"},
)
