"""InternLM 3: a llama with its own names for biases.

Defaults are those of transformers' `InternLM3Config`.
"""

from __future__ import annotations

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(max_position_embeddings=32768, num_key_value_heads=2, head_dim=128, rms_norm_eps=1e-5)
    qkv_bias = reader.boolean("qkv_bias", default=reader.boolean("attention_bias", default=False))
    bias = reader.boolean("bias", default=reader.boolean("mlp_bias", default=False))
    config = read_decoder(reader, qkv_bias=qkv_bias, output_bias=bias, mlp_bias=bias)
    return decoder_model(reader, config, CheckpointLayout())


FAMILY = Family(
    name="internlm3",
    models="InternLM 3",
    model_types=("internlm3",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf_names={"internlm3": "llama"},
)
