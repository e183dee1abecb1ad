"""The first DeepSeek with experts, DeepSeekMoE: some for all tokens, and first layers without any.

transformers has no class for it; defaults are those of the configuration that its models come with.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.mixture import (
    MixtureConfig,
    MixtureNames,
    RouterConfig,
    SharedExperts,
    read_experts,
)
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, ExpertNames
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.mixture_layers import with_mixture
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.mixture import MIXTURE_KEYS, mixture_fields
from mlcbuild.compiler.models.gguf.numbers import number_below
from mlcbuild.compiler.models.gguf.writing import decoder_metadata
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_NAMES = DecoderNames(qkv="self_attn.wqkv_pack")
_LAYOUT = CheckpointLayout(experts=ExpertNames(shared="shared_experts"), gguf_interleaves=True)
_CHAT_CONFIG = (
    *("vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "n_shared_experts", "n_routed_experts", "moe_layer_freq"),
    *("first_k_dense_replace", "hidden_act", "norm_topk_prob", "attention_bias", "rms_norm_eps"),
    *("tie_word_embeddings", "rope_theta", "context_window_size", "prefill_chunk_size", "tensor_parallel_shards"),
    *("head_dim", "max_batch_size", "num_experts_per_tok"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(max_position_embeddings=2048, norm_topk_prob=False)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias)
    scoring = reader.string("scoring_func", default="softmax")
    if scoring != "softmax":
        raise reader.fail("scoring_func", f'is "{scoring}"; here it is "softmax"')
    experts, chosen = read_experts(reader, "n_routed_experts")
    shared = reader.integer("n_shared_experts", low=1, high=64) if reader.has("n_shared_experts") else 0
    inner = reader.integer("moe_intermediate_size", low=1, high=1 << 20)
    normalized = reader.boolean("norm_topk_prob", default=False)
    mixture = MixtureConfig(
        experts=experts,
        experts_per_token=chosen,
        intermediate_size=inner,
        activation=config.feed_forward.activation,
        router=RouterConfig(normalized=normalized and chosen > 1),
        shared=SharedExperts(intermediate_size=shared * inner) if shared else None,
        names=MixtureNames(shared="mlp.shared_experts"),
    )
    first = reader.integer("first_k_dense_replace", low=0, high=config.num_layers - 1, default=0)
    every = reader.integer("moe_layer_freq", low=1, high=1 << 12, default=1)
    own = {
        "intermediate_size": config.feed_forward.intermediate_size,
        "moe_intermediate_size": inner,
        "n_shared_experts": shared or None,
        "n_routed_experts": experts,
        "moe_layer_freq": every,
        "first_k_dense_replace": first,
        "norm_topk_prob": normalized,
        "num_experts_per_tok": chosen,
    }
    dense = [number for number in range(config.num_layers) if number < first or number % every]
    config = with_mixture(replace(config, names=_NAMES), mixture, dense=dense)
    return decoder_model(reader, config, _LAYOUT, fields=_CHAT_CONFIG, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp computes it, the weights of the chosen experts are not normalized."""
    own = ("expert_shared_count", "leading_dense_block_count", "expert_weights_scale")
    document = decoder_document(
        file,
        architecture="deepseek",
        model_type="deepseek",
        class_name="DeepseekForCausalLM",
        also_read=(*MIXTURE_KEYS, *own),
    )
    scale = number_below(file, "deepseek", "expert_weights_scale", 1.0)
    if scale != 1.0:
        raise StageError(f"{file.path}: deepseek.expert_weights_scale is {scale:g}; it can be 1")
    mixture = mixture_fields(file, "deepseek")
    return document | {
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "n_routed_experts": mixture["num_experts"],
        "num_experts_per_tok": mixture["num_experts_per_tok"],
        "moe_intermediate_size": mixture["moe_intermediate_size"],
        "n_shared_experts": file.integer("deepseek.expert_shared_count", 0) or None,
        "first_k_dense_replace": file.integer("deepseek.leading_dense_block_count", 0),
        "norm_topk_prob": False,
    }


FAMILY = Family(
    name="deepseek",
    models="DeepSeekMoE",
    model_types=("deepseek",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "deepseek": GGUFArchitecture(
            config=_config_of_gguf,
            metadata=partial(
                decoder_metadata,
                keys=(
                    "expert_count",
                    "expert_used_count",
                    "expert_feed_forward_length",
                    "expert_shared_count",
                    "leading_dense_block_count",
                    "expert_weights_scale",
                ),
            ),
        )
    },
)
