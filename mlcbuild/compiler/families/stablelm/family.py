"""StableLM: layer norms, heads that are turned in part; StableLM 2 12B has norms of each head, and parallel parts.

Defaults are those of transformers' `StableLmConfig`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import (
    DecoderConfig,
    NormConfig,
    NormKind,
    NormScope,
    QueryKeyNorm,
    Wiring,
    read_decoder,
)
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.writing import decoder_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_LAYOUT = CheckpointLayout(
    query_norm=TensorName("self_attn.q_layernorm.norms.{head}"),
    key_norm=TensorName("self_attn.k_layernorm.norms.{head}"),
)
_CHAT_CONFIG = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("layer_norm_eps", "partial_rotary_factor", "rope_theta", "intermediate_size", "use_qkv_bias", "head_dim"),
    *("context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "max_batch_size"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(max_position_embeddings=4096, num_key_value_heads=32, layer_norm_eps=1e-5)
    bias = reader.boolean("use_qkv_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, norm_field="layer_norm_eps", partial_rotation=0.25)
    plain = NormConfig(epsilon=config.norm.epsilon, kind=NormKind.LAYER)
    attention = config.attention
    if reader.boolean("qk_layernorm", default=False):
        attention = replace(attention, query_key_norm=QueryKeyNorm(norm=plain, scope=NormScope.EACH_HEAD))
    parallel = reader.boolean("use_parallel_residual", default=False)
    config = replace(
        config,
        attention=attention,
        norm=replace(plain, bias=True),
        wiring=Wiring.PARALLEL_ONE_NORM if parallel else Wiring.NORM_BEFORE,
    )
    own = {
        "partial_rotary_factor": reader.number("partial_rotary_factor", low=0.0, high=1.0, default=0.25),
        "use_qkv_bias": bias,
    }
    return decoder_model(reader, config, _LAYOUT, fields=_CHAT_CONFIG, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    document = decoder_document(
        file,
        architecture="stablelm",
        model_type="stablelm",
        class_name="StableLmForCausalLM",
        layer_norm="layer_norm_eps",
        partial=True,
        also_read=("use_parallel_residual",),
    )
    tensors = {
        "use_qkv_bias": "blk.0.attn_q.bias" in file.tensors,
        "use_parallel_residual": "blk.0.ffn_norm.weight" not in file.tensors,
        "qk_layernorm": "blk.0.attn_q_norm.weight" in file.tensors,
    }
    return document | tensors


FAMILY = Family(
    name="stablelm",
    models="StableLM 3B and StableLM 2",
    model_types=("stablelm",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "stablelm": GGUFArchitecture(
            config=_config_of_gguf, metadata=partial(decoder_metadata, keys=("use_parallel_residual",))
        )
    },
)
