"""InternLM: a llama whose attention may have biases.

Defaults are those of the `InternLMConfig` that its checkpoints come with.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.checkpoint_layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.decoder_names import DecoderNames
from mlcbuild.compiler.models.family import Family, FamilyModel

_NAMES = DecoderNames(qkv="self_attn.wqkv_pack")
_CHAT_CONFIG = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps", "intermediate_size"),
    *("bias", "use_cache", "pad_token_id", "bos_token_id", "eos_token_id", "context_window_size"),
    *("prefill_chunk_size", "tensor_parallel_shards", "max_batch_size", "head_dim"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.without("num_key_value_heads", "head_dim")
    reader = reader.with_defaults(max_position_embeddings=2048)
    bias = reader.boolean("bias", default=True)
    config = replace(read_decoder(reader, qkv_bias=bias, output_bias=bias), names=_NAMES)
    own: dict[str, object] = {"bias": bias, "use_cache": True}
    own |= {name: reader.value(name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    return decoder_model(reader, config, CheckpointLayout(), fields=_CHAT_CONFIG, own=own)


FAMILY = Family(
    name="internlm",
    models="InternLM",
    model_types=("internlm",),
    configuration=DecoderConfig,
    resolve=resolve,
)
