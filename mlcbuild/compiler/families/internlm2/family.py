"""InternLM 2 and 2.5: a llama whose queries, keys and values lie together by key-value heads.

Defaults are those of the `InternLM2Config` that its checkpoints come with.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_NAMES = DecoderNames(
    embedding="model.tok_embeddings",
    head="output",
    attention_norm="attention_norm",
    feed_forward_norm="ffn_norm",
    qkv="attention.wqkv",
    output="attention.wo",
    gate_up="feed_forward.gate_up_proj",
    down="feed_forward.w2",
)
_LAYOUT = CheckpointLayout(
    embedding=TensorName("model.tok_embeddings", "token_embd"),
    norm=TensorName("model.norm", "output_norm"),
    head=TensorName("output", "output"),
    attention_norm=TensorName("attention_norm", "attn_norm"),
    feed_forward_norm=TensorName("ffn_norm", "ffn_norm"),
    qkv=(TensorName("attention.wqkv"),),
    gguf_qkv=("attn_q", "attn_k", "attn_v"),
    output=TensorName("attention.wo", "attn_output"),
    gate_up=(TensorName("feed_forward.w1", "ffn_gate"), TensorName("feed_forward.w3", "ffn_up")),
    down=TensorName("feed_forward.w2", "ffn_down"),
    grouped_qkv=True,
    gguf_interleaves=True,
)
_CHAT_CONFIG = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("rms_norm_eps", "intermediate_size", "bias", "use_cache", "rope_theta", "pad_token_id", "bos_token_id"),
    *("eos_token_id", "context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "max_batch_size"),
    "head_dim",
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(max_position_embeddings=2048)
    bias = reader.boolean("bias", default=True)
    config = replace(read_decoder(reader, qkv_bias=bias, output_bias=bias), names=_NAMES)
    own: dict[str, object] = {"bias": bias, "use_cache": True}
    own |= {name: reader.value(name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    return decoder_model(reader, config, _LAYOUT, fields=_CHAT_CONFIG, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    document = decoder_document(
        file, architecture="internlm2", model_type="internlm2", class_name="InternLM2ForCausalLM"
    )
    return document | {"bias": "blk.0.attn_q.bias" in file.tensors}


FAMILY = Family(
    name="internlm2",
    models="InternLM 2",
    model_types=("internlm2",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"internlm2": GGUFArchitecture(config=_config_of_gguf)},
)
