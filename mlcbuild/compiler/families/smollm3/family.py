"""SmolLM3: a llama in which every fourth layer does not rotate queries and keys.

Defaults are those of transformers' `SmolLM3Config`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, LayerKind, read_decoder
from mlcbuild.compiler.models.architecture.rotary import RotaryEmbedding, RotaryForm
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.attention_kinds import check_full_attention
from mlcbuild.compiler.models.configuration.layer_types import read_turned_layers
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(
        max_position_embeddings=32768, num_key_value_heads=4, rope_theta=2000000.0, tie_word_embeddings=True
    )
    bias, mlp_bias = (reader.boolean(name, default=False) for name in ("attention_bias", "mlp_bias"))
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias, mlp_bias=mlp_bias)
    check_full_attention(reader, layers=config.num_layers)
    plain = RotaryEmbedding(base=config.attention.rotary.base, form=RotaryForm.NONE)
    kinds = (LayerKind(name="turned"), LayerKind(name="not turned", attention=replace(config.attention, rotary=plain)))
    turned = read_turned_layers(reader, config.num_layers)
    rotary = config.attention.rotary.in_model(config.attention.head_dim)
    config = replace(
        config,
        attention=replace(config.attention, rotary=rotary),
        kinds=kinds,
        kinds_of_layers=tuple("turned" if each else "not turned" for each in turned),
    )
    return decoder_model(reader, config, CheckpointLayout(gguf_interleaves=True))


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    return decoder_document(file, architecture="smollm3", model_type="smollm3", class_name="SmolLM3ForCausalLM")


FAMILY = Family(
    name="smollm3",
    models="SmolLM3",
    model_types=("smollm3",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"smollm3": GGUFArchitecture(config=_config_of_gguf)},
)
