"""Granite 4: layers of Mamba 2 and of attention, which may be all; in each a feed-forward, and experts beside it where
the model has them.

Defaults are those of transformers' `GraniteMoeHybridConfig`.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.families.granitemoehybrid.gguf_metadata import (
    ATTENTION,
    MAMBA,
    architecture_of,
    config_of_gguf,
    metadata_of_model,
)
from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, FeedForwardConfig, LayerKind, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.mixture import MixtureConfig, read_experts
from mlcbuild.compiler.models.architecture.recurrence import StateSpaceConfig
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.granite_factors import with_granite_factors
from mlcbuild.compiler.models.configuration.granite_mixture import (
    GRANITE_EXPERTS,
    SHARED_INPUT,
    SHARED_OUTPUT,
    granite_mixture,
)
from mlcbuild.compiler.models.configuration.state_space import read_state_space
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture

_NAMES = {  # as published, and as transformers 5 writes them
    "attention": ATTENTION,
    "mamba": MAMBA,
    "full_attention": ATTENTION,
    "linear_attention": MAMBA,
}
_DEFAULTS: dict[str, object] = {
    "max_position_embeddings": 2048,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "shared_intermediate_size": 1024,
}
_MAMBA_NAMES = {
    "num_heads": "mamba_n_heads",
    "head_dim": "mamba_d_head",
    "n_groups": "mamba_n_groups",
    "state_size": "mamba_d_state",
    "conv_kernel": "mamba_d_conv",
    "expand": "mamba_expand",
    "use_conv_bias": "mamba_conv_bias",
    "use_bias": "mamba_proj_bias",
}
_MAMBA_DEFAULTS = {"num_heads": 128, "n_groups": 1, "state_size": 256, "conv_kernel": 4, "expand": 2}
_LAYOUT = CheckpointLayout(
    gate_up=(TensorName(SHARED_INPUT),),
    down=TensorName(SHARED_OUTPUT, "ffn_down"),
    gguf_gate_up=("ffn_gate", "ffn_up"),
    experts=GRANITE_EXPERTS,
    recurrence=TensorName("mamba"),
    gguf_interleaves=True,
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(
        reader, qkv_bias=bias, output_bias=bias, rotary_form=_rotary_form(reader), intermediate_default=11008
    )
    config, own = with_granite_factors(reader, replace(config, feed_forward=_feed_forward(reader, config)))
    types = _layer_types(reader, config.num_layers)
    if MAMBA in types:
        recurrent = LayerKind(name=MAMBA, recurrence=_state_space(reader, config))
        kinds = (LayerKind(name=ATTENTION), recurrent)
        config = replace(config, names=DecoderNames(recurrence="mamba"), kinds=kinds, kinds_of_layers=types)
    own |= {"layer_types": list(types)}
    found = decoder_model(reader, config, _LAYOUT, own=own)
    return replace(found, kv_state_kind="hybrid" if MAMBA in types else "kv_cache")


def _rotary_form(reader: ConfigReader) -> RotaryForm:
    kind = reader.value("position_embedding_type")
    if kind not in (None, "nope", "rope"):
        raise reader.fail("position_embedding_type", f'is "{kind}"; it has to be "rope", "nope" or null')
    return RotaryForm.HALVES if kind == "rope" else RotaryForm.NONE


def _feed_forward(reader: ConfigReader, config: DecoderConfig) -> FeedForwardConfig | MixtureConfig:
    activation = config.feed_forward.activation
    shared = reader.integer("shared_intermediate_size", low=1, high=1 << 20)
    if reader.integer("num_local_experts", low=0, high=1 << 12) == 0:
        return FeedForwardConfig(intermediate_size=shared, activation=activation)
    return granite_mixture(config, read_experts(reader, "num_local_experts"), shared=shared)


def _layer_types(reader: ConfigReader, layers: int) -> tuple[str, ...]:
    found = reader.value("layer_types") or reader.value("layers_block_type") or [MAMBA] * layers
    types = tuple(_NAMES.get(str(name), "") for name in found) if isinstance(found, list) else ()
    if len(types) != layers or "" in types:
        raise reader.fail("layer_types", f'has to be "{ATTENTION}" or "{MAMBA}" for each of the {layers} layers')
    if ATTENTION not in types:
        raise reader.fail("layer_types", f'has "{MAMBA}" alone; a model has layers of attention too')
    return types


def _state_space(reader: ConfigReader, config: DecoderConfig) -> StateSpaceConfig:
    # With several groups, transformers norms each by itself.
    reader.refuse(hidden_act="silu", mamba_n_groups=1)
    named = reader.with_names(**_MAMBA_NAMES).with_defaults(**_MAMBA_DEFAULTS)
    return read_state_space(named, hidden_size=config.hidden_size, norm_epsilon=config.norm.epsilon)


FAMILY = Family(
    name="granitemoehybrid",
    models="Granite 4",
    model_types=("granitemoehybrid",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"granitehybrid": GGUFArchitecture(config=config_of_gguf, metadata=metadata_of_model)},
    gguf_names={"granitemoehybrid": architecture_of},
    kv_state_kind="hybrid",
)
