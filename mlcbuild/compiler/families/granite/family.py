"""Granite: a llama whose embedding, residuals, attention and logits are scaled.

Defaults are those of transformers' `GraniteConfig`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.granite_factors import with_granite_factors
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.scales import SCALE_KEYS, granite_factors, granite_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(max_position_embeddings=2048)
    bias, mlp_bias = (reader.boolean(name, default=False) for name in ("attention_bias", "mlp_bias"))
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias, mlp_bias=mlp_bias)
    config, own = with_granite_factors(reader, config)
    return decoder_model(reader, config, CheckpointLayout(gguf_interleaves=True), own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    document = decoder_document(
        file, architecture="granite", model_type="granite", class_name="GraniteForCausalLM", also_read=SCALE_KEYS
    )
    return document | granite_factors(file, "granite")


FAMILY = Family(
    name="granite",
    models="dense Granite 3 and 4",
    model_types=("granite",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"granite": GGUFArchitecture(config=_config_of_gguf, metadata=granite_metadata)},
)
