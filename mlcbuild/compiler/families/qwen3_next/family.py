"""Qwen3-Next and Qwen3.5: layers of the gated delta rule, and every fourth of attention whose output is gated.

Defaults are those of transformers' `Qwen3NextConfig`, `Qwen3_5TextConfig` and `Qwen3_5MoeTextConfig`. A
vision-language model of Qwen3.5 (`qwen3_5`, `qwen3_5_moe`) is read as its text part; layers that predict several tokens
at once (`mtp`) are left out, as transformers does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from mlcbuild.compiler.families.qwen3_next.gguf_metadata import config_of_gguf, metadata_of_model
from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, QueryKeyNorm, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.delta_rule import with_delta_rule
from mlcbuild.compiler.models.configuration.mixture_layers import with_mixture_of_qwen
from mlcbuild.compiler.models.configuration.text_config import read_text_config
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture

_NEXT, _DENSE, _MOE = "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"
_WRAPPERS = ("qwen3_5", "qwen3_5_moe")
_ARCHITECTURES = {_NEXT: "qwen3next", _DENSE: "qwen35", _MOE: "qwen35moe"}
_MIXTURE: Mapping[str, object] = {
    "num_key_value_heads": 2,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "norm_topk_prob": True,
}
_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    _NEXT: {**_MIXTURE, "intermediate_size": 5632, "num_experts": 512, "num_experts_per_tok": 10},
    _DENSE: {"num_key_value_heads": 4, "intermediate_size": 12288},
    _MOE: {**_MIXTURE, "intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8},
}
_LAYOUT = CheckpointLayout(
    one_added=True,
    feed_forward_norm=TensorName("post_attention_layernorm", "post_attention_norm"),
    other_names=(("model.", "model.language_model."),),
    ignored=(r"mtp\..*", r"model\.visual\..*"),
)
_CHAT_CONFIG = (
    *("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "num_key_value_heads"),
    *("rms_norm_eps", "vocab_size", "rope_theta", "head_dim", "hidden_act", "attention_bias", "tie_word_embeddings"),
    *("context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "dtype", "max_batch_size"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    model_type = reader.string("model_type")
    if model_type in _WRAPPERS:
        model_type = f"{model_type}_text"
        reader = read_text_config(reader, model_type)
    reader = reader.with_defaults(max_position_embeddings=32768, head_dim=256, **_DEFAULTS[model_type])
    reader.refuse(attn_output_gate=True)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias, partial_rotation=0.25)
    config = replace(
        config,
        attention=replace(config.attention, query_key_norm=QueryKeyNorm(norm=config.norm), output_gate=True),
        names=DecoderNames(qkv="self_attn.c_attn"),
    )
    if model_type != _DENSE:
        reader.refuse(decoder_sparse_step=1, mlp_only_layers=[])
        config, _ = with_mixture_of_qwen(reader, config, shares=True)
    config, own = with_delta_rule(reader, config, fused=model_type == _NEXT)
    further = reader.integer("mtp_num_hidden_layers", low=0, high=64, default=0)
    layout = _LAYOUT.without_layers_behind(config.num_layers, further, in_gguf=True)
    return decoder_model(reader, config, layout, fields=_CHAT_CONFIG, own=own)


FAMILY = Family(
    name="qwen3_next",
    models="Qwen3-Next and Qwen3.5, with experts too",
    model_types=(_NEXT, *_WRAPPERS, _DENSE, _MOE),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        name: GGUFArchitecture(
            config=partial(config_of_gguf, architecture=name, model_type=model_type), metadata=metadata_of_model
        )
        for model_type, name in _ARCHITECTURES.items()
    },
    gguf_names=_ARCHITECTURES | {name: _ARCHITECTURES[f"{name}_text"] for name in _WRAPPERS},
    kv_state_kind="hybrid",
)
