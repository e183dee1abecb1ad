"""The first DeepSeek with experts, DeepSeekMoE: some for all tokens, and first layers without any.

transformers has no class for it; defaults are those of the configuration that its models come with.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.mixture import RouterConfig, read_experts
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, ExpertNames
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.deepseek_mixture import with_mixture_of_deepseek
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.deepseek_mixture import DEEPSEEK_MIXTURE_KEYS, deepseek_mixture_fields
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
    normalized = reader.boolean("norm_topk_prob", default=False)
    router = RouterConfig(normalized=normalized and chosen > 1)
    config, own = with_mixture_of_deepseek(reader, replace(config, names=_NAMES), router, counts=(experts, chosen))
    own |= {"norm_topk_prob": normalized}
    return decoder_model(reader, config, _LAYOUT, fields=_CHAT_CONFIG, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp computes it, the weights of the chosen experts are not normalized."""
    document = decoder_document(
        file,
        architecture="deepseek",
        model_type="deepseek",
        class_name="DeepseekForCausalLM",
        also_read=DEEPSEEK_MIXTURE_KEYS,
    )
    scale = number_below(file, "deepseek", "expert_weights_scale", 1.0)
    if scale != 1.0:
        raise StageError(f"{file.path}: deepseek.expert_weights_scale is {scale:g}; it can be 1")
    return document | {
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        **deepseek_mixture_fields(file, "deepseek"),
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
            config=_config_of_gguf, metadata=partial(decoder_metadata, keys=DEEPSEEK_MIXTURE_KEYS)
        )
    },
)
