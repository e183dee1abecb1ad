"""The `config.json` of a DeepSeek V2 or V3 from the metadata of a GGUF file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.mixture import MIXTURE_KEYS, mixture_fields
from mlcbuild.compiler.models.gguf.numbers import number_below
from mlcbuild.compiler.models.gguf.writing import decoder_metadata
from mlcbuild.compiler.models.gguf.written import GGUFMetadata, Value, WrittenModel
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_KEYS = (
    *("attention.q_lora_rank", "attention.kv_lora_rank", "attention.key_length_mla", "attention.value_length_mla"),
    *("attention.value_length", "expert_shared_count", "leading_dense_block_count", "expert_weights_scale"),
    *("expert_weights_norm", "expert_gating_func", "expert_group_count", "expert_group_used_count"),
)
_EXPERT_KEYS = (
    *("expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_count"),
    *("leading_dense_block_count", "expert_weights_scale", "expert_weights_norm", "expert_gating_func"),
    *("expert_group_count", "expert_group_used_count"),
)
_SOFTMAX, _SIGMOID = 1, 2  # llama.cpp's numbers


def config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp reads it. Raises StageError for files of older converters, which have `attn_k_b` and `attn_v_b` in
    one."""

    def number(key: str, default: int | None = None) -> int:
        return file.integer(f"deepseek2.{key}", *(() if default is None else (default,)))

    if "deepseek2.attention.key_length_mla" not in file.metadata:
        raise StageError(
            f"{file.path} is of an older llama.cpp: it has no deepseek2.attention.key_length_mla",
            advice=("convert the model again, or import it from a Hugging Face directory",),
        )
    sigmoid = number("expert_gating_func", _SOFTMAX) == _SIGMOID
    model_type, class_name = ("deepseek_v3", "DeepseekV3") if sigmoid else ("deepseek_v2", "DeepseekV2")
    document = decoder_document(
        file,
        architecture="deepseek2",
        model_type=model_type,
        class_name=f"{class_name}ForCausalLM",
        also_read=(*MIXTURE_KEYS, *_KEYS),
        partial=True,
        yarn_grows=True,
    )
    for name in ("head_dim", "partial_rotary_factor"):
        del document[name]
    mixture = mixture_fields(file, "deepseek2")
    rotated, groups = number("rope.dimension_count"), number("expert_group_count", 1) or 1
    normalized = file.metadata.get("deepseek2.expert_weights_norm", False)
    found: dict[str, object] = {
        "num_key_value_heads": document["num_attention_heads"],
        "q_lora_rank": number("attention.q_lora_rank", 0) or None,
        "kv_lora_rank": number("attention.kv_lora_rank"),
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": number("attention.key_length_mla") - rotated,
        "v_head_dim": number("attention.value_length_mla"),
        "n_routed_experts": mixture["num_experts"],
        "num_experts_per_tok": mixture["num_experts_per_tok"],
        "moe_intermediate_size": mixture["moe_intermediate_size"],
        "n_shared_experts": number("expert_shared_count"),
        "first_k_dense_replace": number("leading_dense_block_count", 0),
        "routed_scaling_factor": number_below(file, "deepseek2", "expert_weights_scale", 1.0),
        "norm_topk_prob": normalized,
        "n_group": groups,
        "topk_group": number("expert_group_used_count", 1) or 1,
    }
    if not sigmoid:
        found["topk_method"] = "greedy" if groups == 1 else "group_limited_greedy"
    return document | found


def metadata_of_model(model: WrittenModel) -> GGUFMetadata:
    """As llama.cpp computes it, heads share one key, which is the latent vector and the rotated part behind it."""
    attention = model.configuration.attention
    latent = attention.latent
    own: dict[str, Value] = {
        "attention.head_count_kv": 1,
        "attention.key_length": latent.kept_dim,
        "attention.value_length": latent.rank,
        "attention.key_length_mla": attention.head_dim,
        "attention.value_length_mla": latent.value_dim,
        "attention.kv_lora_rank": latent.rank,
    }
    own |= {"attention.q_lora_rank": latent.query_rank} if latent.query_rank else {}
    return decoder_metadata(model, keys=_EXPERT_KEYS, own=own, grows=True)
