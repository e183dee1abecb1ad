"""The gpt-oss family: attention with sinks and a sliding window in every other layer, and mixtures of experts with
biases and a clamped gate.

Defaults are those of transformers' `GptOssConfig`. MLC-LLM does not have the model. Checkpoints whose experts are
quantized (MXFP4) are refused, as all quantized ones; those in bfloat16 are read.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.checkpoint_layout import CheckpointLayout, ExpertNames
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel
from mlcbuild.compiler.models.layer_types import every_nth_is_full, read_layer_types, with_windows
from mlcbuild.compiler.models.layer_types import read_window as read_layer_window
from mlcbuild.compiler.models.mixture import ClampedGate, MixtureConfig, MixtureNames, RouterConfig, read_experts

_DEFAULTS: dict[str, object] = {
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 150000.0,
    "sliding_window": 128,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
}
_ROPE = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
_LAYOUT = CheckpointLayout(experts=ExpertNames(router="router", fused_router="mlp.router", interleaved=True))


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    reader.refuse(hidden_act="silu")
    if all(reader.document.get(name) is None for name in ("rope_scaling", "rope_parameters")):
        reader = replace(reader, document={**reader.document, "rope_parameters": _ROPE})
    bias = reader.boolean("attention_bias", default=True)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias)
    experts, chosen = read_experts(reader, "num_local_experts")
    clamped = ClampedGate(
        alpha=reader.number("swiglu_alpha", low=1e-6, high=1e6, default=1.702),
        limit=reader.number("swiglu_limit", low=1e-6, high=1e6, default=7.0),
    )
    mixture = MixtureConfig(
        experts=experts,
        experts_per_token=chosen,
        intermediate_size=config.feed_forward.intermediate_size,
        router=RouterConfig(normalized=True, bias=True),
        bias=True,
        clamped=clamped,
        names=MixtureNames(router="mlp.router"),
    )
    config = replace(config, feed_forward=mixture, attention=replace(config.attention, sinks=True))
    layers = config.num_layers
    types = read_layer_types(reader, layers=layers, default=every_nth_is_full(2, layers=layers))
    config = with_windows(config, types, read_layer_window(reader, types))
    own = {
        "num_local_experts": experts,
        "num_experts_per_tok": chosen,
        "swiglu_alpha": clamped.alpha,
        "swiglu_limit": clamped.limit,
    }
    return decoder_model(reader, config, _LAYOUT, own=own)


FAMILY = Family(
    name="gpt_oss",
    models="gpt-oss",
    model_types=("gpt_oss",),
    configuration=DecoderConfig,
    resolve=resolve,
)
