"""Nemotron (and Minitron): layer norms that multiply by 1 + w, squared ReLU, heads that are turned in part.

Defaults are those of transformers' `NemotronConfig`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, NormConfig, NormKind, read_decoder
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_CHAT_CONFIG = (
    *("vocab_size", "max_position_embeddings", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "rope_theta", "partial_rotary_factor", "rope_scaling", "norm_eps"),
    *("head_dim", "tie_word_embeddings", "mlp_bias", "context_window_size", "prefill_chunk_size"),
    *("tensor_parallel_shards", "pipeline_parallel_stages", "max_batch_size", "disaggregation"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(max_position_embeddings=4096, norm_eps=1e-5, hidden_act="relu2")
    bias, mlp_bias = (reader.boolean(name, default=False) for name in ("attention_bias", "mlp_bias"))
    config = read_decoder(
        reader,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=mlp_bias,
        gated=False,
        norm_field="norm_eps",
        partial_rotation=0.5,
    )
    config = replace(config, norm=NormConfig(epsilon=config.norm.epsilon, kind=NormKind.LAYER, bias=True))
    own = {
        "max_position_embeddings": reader.value("max_position_embeddings"),
        "partial_rotary_factor": reader.number("partial_rotary_factor", low=0.0, high=1.0, default=0.5),
        "mlp_bias": mlp_bias,
        "disaggregation": False,
    }
    return decoder_model(reader, config, CheckpointLayout(one_added=True), fields=_CHAT_CONFIG, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    document = decoder_document(
        file,
        architecture="nemotron",
        model_type="nemotron",
        class_name="NemotronForCausalLM",
        hidden_act="relu2",
        layer_norm="norm_eps",
        partial=True,
    )
    biases = {"attention_bias": "blk.0.attn_q.bias" in file.tensors, "mlp_bias": "blk.0.ffn_up.bias" in file.tensors}
    return document | biases


FAMILY = Family(
    name="nemotron",
    models="Nemotron 3 and 4, Minitron",
    model_types=("nemotron",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"nemotron": GGUFArchitecture(config=_config_of_gguf)},
)
