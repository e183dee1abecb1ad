"""EXAONE 4 whose layers all see the whole text: norms behind attention and feed-forward, and of queries and keys.

Defaults are those of transformers' `Exaone4Config`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.attention_kinds import check_full_attention
from mlcbuild.compiler.models.checkpoint_layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder import DecoderConfig, QueryKeyNorm, Wiring, read_decoder
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf_config import decoder_document
from mlcbuild.compiler.models.gguf_windows import WINDOW, WINDOW_KEYS

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile


_SLIDING_LAYERS = 64


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(max_position_embeddings=2048, num_key_value_heads=32, rms_norm_eps=1e-5)
    config = read_decoder(reader)
    if reader.document.get("sliding_window", 4096) is not None:
        raise reader.fail("sliding_window", "is set, so some layers have a sliding window; only null is supported")
    check_full_attention(reader, layers=config.num_layers)
    attention = replace(config.attention, query_key_norm=QueryKeyNorm(norm=config.norm))
    config = replace(config, attention=attention, wiring=Wiring.NORM_AFTER)
    return decoder_model(reader, config, CheckpointLayout())


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp knows them, models of 64 layers have windows, whatever the file says."""
    document = decoder_document(
        file,
        architecture="exaone4",
        model_type="exaone4",
        class_name="Exaone4ForCausalLM",
        also_read=WINDOW_KEYS,
    )
    window = 4096 if file.integer("exaone4.block_count") == _SLIDING_LAYERS else 0
    return document | {"sliding_window": file.integer(f"exaone4.{WINDOW}", window) or None}


FAMILY = Family(
    name="exaone4",
    models="EXAONE 4 1.2B",
    model_types=("exaone4",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"exaone4": GGUFArchitecture(config=_config_of_gguf)},
)
