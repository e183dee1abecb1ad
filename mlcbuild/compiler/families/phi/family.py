"""Phi 1, 1.5 and 2: attention and feed-forward in parallel behind one norm, heads that are turned in part.

Defaults are those of transformers' `PhiConfig`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import (
    DecoderConfig,
    NormConfig,
    NormKind,
    QueryKeyNorm,
    Wiring,
    read_decoder,
)
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.shared_names import PHI_NAMES

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_LAYOUT = CheckpointLayout(
    norm=TensorName("model.final_layernorm", "output_norm"),
    output=TensorName("self_attn.dense", "attn_output"),
    query_norm=TensorName("self_attn.q_layernorm"),
    key_norm=TensorName("self_attn.k_layernorm"),
    up=TensorName("mlp.fc1", "ffn_up"),
    down=TensorName("mlp.fc2", "ffn_down"),
)
_CHAT_CONFIG = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "layer_norm_eps"),
    *("position_embedding_base", "partial_rotary_factor", "num_key_value_heads", "context_window_size"),
    *("prefill_chunk_size", "head_dim", "tensor_parallel_shards", "max_batch_size"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(max_position_embeddings=2048, layer_norm_eps=1e-5, hidden_act="gelu_new")
    config = read_decoder(
        reader,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated=False,
        norm_field="layer_norm_eps",
        partial_rotation=0.5,
    )
    norm = NormConfig(epsilon=config.norm.epsilon, kind=NormKind.LAYER, bias=True)
    attention = config.attention
    if reader.boolean("qk_layernorm", default=False):
        attention = replace(attention, query_key_norm=QueryKeyNorm(norm=norm))
    config = replace(
        config,
        attention=attention,
        norm=norm,
        wiring=Wiring.PARALLEL_ONE_NORM,
        head_bias=True,
        names=PHI_NAMES,
    )
    if config.tie_word_embeddings:
        raise reader.fail("tie_word_embeddings", "is true; the head of a phi has a bias, and is not the embedding")
    own = {"partial_rotary_factor": reader.number("partial_rotary_factor", low=0.0, high=1.0, default=0.5)}
    return decoder_model(reader, config, _LAYOUT, fields=_CHAT_CONFIG, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    return decoder_document(
        file,
        architecture="phi2",
        model_type="phi",
        class_name="PhiForCausalLM",
        hidden_act="gelu_new",
        layer_norm="layer_norm_eps",
        partial=True,
    )


FAMILY = Family(
    name="phi",
    models="Phi 1, 1.5 and 2",
    model_types=("phi",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"phi2": GGUFArchitecture(config=_config_of_gguf)},
)
