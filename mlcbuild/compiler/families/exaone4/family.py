"""EXAONE 4: norms behind attention and feed-forward, and of queries and keys. Where there is a window, of each four
layers three rotate and have it, and one does neither.

Defaults are those of transformers' `Exaone4Config`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, QueryKeyNorm, Wiring, read_decoder
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.layer_types import (
    FULL,
    every_nth_is_full,
    read_layer_types,
    read_window,
    with_windows,
)
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.windows import WINDOW, WINDOW_KEYS, WINDOW_PATTERN, check_one_base, window_document
from mlcbuild.compiler.models.gguf.writing import decoder_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_SLIDING_LAYERS = 64
_DEFAULTS: dict[str, object] = {
    "max_position_embeddings": 2048,
    "num_key_value_heads": 32,
    "rms_norm_eps": 1e-5,
    "sliding_window": 4096,
}


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    config = read_decoder(reader)
    attention = replace(config.attention, query_key_norm=QueryKeyNorm(norm=config.norm))
    config = replace(config, attention=attention, wiring=Wiring.NORM_AFTER)
    layers, slides = config.num_layers, reader.has("sliding_window")
    default = (FULL,) * layers
    if slides and not reader.has("layer_types"):
        default = every_nth_is_full(
            reader.integer("sliding_window_pattern", low=1, high=1 << 12, default=4), layers=layers
        )
    types = read_layer_types(reader, layers=layers, default=default)
    still = {FULL: replace(attention.rotary, form=RotaryForm.NONE, table=None)} if slides else None
    config = with_windows(config, types, read_window(reader, types), rotaries=still)
    return decoder_model(reader, config, CheckpointLayout())


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp knows them, models of 64 layers have windows if the file says nothing."""
    document = decoder_document(
        file,
        architecture="exaone4",
        model_type="exaone4",
        class_name="Exaone4ForCausalLM",
        also_read=WINDOW_KEYS,
    )
    check_one_base(file, "exaone4")
    window = 4096 if file.integer("exaone4.block_count") == _SLIDING_LAYERS else 0
    windows = window_document(file, "exaone4", every=4, window=window)
    return document | {"sliding_window": None} | windows


FAMILY = Family(
    name="exaone4",
    models="EXAONE 4",
    model_types=("exaone4",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "exaone4": GGUFArchitecture(
            config=_config_of_gguf, metadata=partial(decoder_metadata, keys=(WINDOW, WINDOW_PATTERN))
        )
    },
)
