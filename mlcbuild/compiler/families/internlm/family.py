"""InternLM: a llama whose attention may have biases.

Defaults are those of the `InternLMConfig` that its checkpoints come with.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel

_NAMES = DecoderNames(qkv="self_attn.wqkv_pack")
_CHAT_CONFIG = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps", "intermediate_size"),
    *("bias", "use_cache", "pad_token_id", "bos_token_id", "eos_token_id", "context_window_size"),
    *("prefill_chunk_size", "tensor_parallel_shards", "max_batch_size", "head_dim"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = _with_rotary(reader).with_defaults(max_position_embeddings=2048)
    bias = reader.boolean("bias", default=True)
    config = replace(read_decoder(reader, qkv_bias=bias, output_bias=bias), names=_NAMES)
    own: dict[str, object] = {"bias": bias, "use_cache": True}
    own |= {name: reader.value(name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    return decoder_model(reader, config, CheckpointLayout(), fields=_CHAT_CONFIG, own=own)


def _with_rotary(reader: ConfigReader) -> ConfigReader:
    """The fields that others have for `rotary`, which the first checkpoints do not have: a plain embedding."""
    ignored = ("num_key_value_heads", "head_dim", "rope_theta", "rope_scaling", "rope_parameters")
    reader = reader.without(*ignored, "partial_rotary_factor")
    if not reader.has("rotary"):
        return reader
    rotary = reader.table("rotary")
    if rotary.string("type", default="origin") not in ("origin", "dynamic"):
        raise reader.fail("rotary", f'has the type "{rotary.string("type")}"; known: "origin", "dynamic"')
    fields: dict[str, object] = {"rope_theta": rotary.value("base")}
    if rotary.string("type", default="origin") == "dynamic":
        factor = rotary.number("scaling_factor", low=1.0, high=1e6, default=1.0)
        fields["rope_scaling"] = {"rope_type": "dynamic", "factor": factor}
    return replace(reader, document={**reader.document, **fields})


FAMILY = Family(
    name="internlm",
    models="InternLM",
    model_types=("internlm",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf_names={"internlm": "llama"},
)
