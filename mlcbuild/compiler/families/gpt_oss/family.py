"""The gpt-oss family: attention with sinks and a sliding window in every other layer, and mixtures of experts with
biases and a clamped gate.

Defaults are those of transformers' `GptOssConfig`. MLC-LLM does not have the model. Checkpoints have their experts in
MXFP4, as they were published, or in bfloat16.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.architecture.mixture import (
    ClampedGate,
    MixtureConfig,
    MixtureNames,
    RouterConfig,
    read_experts,
)
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, ExpertNames, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.layer_types import every_nth_is_full, read_layer_types, with_windows
from mlcbuild.compiler.models.configuration.layer_types import read_window as read_layer_window
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.mixture import MIXTURE_KEYS, mixture_fields
from mlcbuild.compiler.models.gguf.windows import WINDOW, WINDOW_KEYS, check_one_base, window_document
from mlcbuild.compiler.models.gguf.writing import decoder_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

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
_LAYOUT = CheckpointLayout(
    feed_forward_norm=TensorName("post_attention_layernorm", "post_attention_norm"),
    experts=ExpertNames(router="router", fused_router="mlp.router", transposed=True, interleaved=True, in_mxfp4=True),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    reader.refuse(hidden_act="silu")
    if all(reader.document.get(name) is None for name in ("rope_scaling", "rope_parameters")):
        reader = replace(reader, document={**reader.document, "rope_parameters": _ROPE})
    bias = reader.boolean("attention_bias", default=True)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias)
    experts, chosen = read_experts(reader)  # transformers takes either name
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
    attention = config.attention
    attention = replace(attention, sinks=True, rotary=attention.rotary.in_model(attention.head_dim))
    config = replace(config, feed_forward=mixture, attention=attention)
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


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """llama.cpp rounds the ends of YaRN's blend to whole pairs, which the models do not; a file does not tell."""
    document = decoder_document(
        file,
        architecture="gpt-oss",
        model_type="gpt_oss",
        class_name="GptOssForCausalLM",
        also_read=(*MIXTURE_KEYS, *WINDOW_KEYS),
    )
    check_one_base(file, "gpt-oss")
    document["attention_bias"] = "blk.0.attn_q.bias" in file.tensors
    mixture = mixture_fields(file, "gpt-oss")
    size = mixture.get("moe_intermediate_size")
    document |= {
        "num_local_experts": mixture["num_experts"],
        "num_experts_per_tok": mixture["num_experts_per_tok"],
        "intermediate_size": file.integer("gpt-oss.feed_forward_length") if size is None else size,
    }
    scaling = document.pop("rope_scaling", None)
    plain = {"rope_type": "default", "rope_theta": document["rope_theta"]}
    document["rope_parameters"] = plain | scaling | {"truncate": False} if isinstance(scaling, dict) else plain
    return document | window_document(file, "gpt-oss", every=2)


FAMILY = Family(
    name="gpt_oss",
    models="gpt-oss",
    model_types=("gpt_oss",),
    configuration=DecoderConfig,
    resolve=resolve,
    quantized_checkpoints=("mxfp4",),
    gguf={
        "gpt-oss": GGUFArchitecture(
            config=_config_of_gguf,
            metadata=partial(
                decoder_metadata, keys=("expert_count", "expert_used_count", "expert_feed_forward_length", WINDOW)
            ),
        )
    },
)
