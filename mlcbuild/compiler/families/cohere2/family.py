"""The Cohere 2 family (Command R7B): attention and feed-forward side by side behind one norm, and of each four layers
three that rotate and have a sliding window, and one that does neither.

Defaults are those of transformers' `Cohere2Config` where a `config.json` leaves a field out.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, NormKind, Wiring, read_decoder
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
from mlcbuild.compiler.models.gguf.numbers import number_below
from mlcbuild.compiler.models.gguf.windows import WINDOW, WINDOW_KEYS, check_one_base, window_document
from mlcbuild.compiler.models.gguf.writing import decoder_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS: dict[str, object] = {
    "vocab_size": 256000,
    "hidden_size": 8192,
    "intermediate_size": 22528,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "max_position_embeddings": 8192,
    "layer_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "sliding_window": 4096,
}


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(
        reader, qkv_bias=bias, output_bias=bias, norm_field="layer_norm_eps", rotary_form=RotaryForm.NEIGHBOURS
    )
    head_dim = config.hidden_size // config.attention.query_heads
    reader.refuse(head_dim=head_dim)
    scale = reader.number("logit_scale", low=1e-6, high=1e6, default=0.0625)
    config = replace(
        config,
        norm=replace(config.norm, kind=NormKind.LAYER),
        wiring=Wiring.PARALLEL_ONE_NORM,
        logit_scale=scale,
    )
    layers = config.num_layers
    nth = reader.integer("sliding_window_pattern", low=1, high=1 << 12, default=4)
    types = read_layer_types(reader, layers=layers, default=every_nth_is_full(nth, layers=layers))
    still = {FULL: replace(config.attention.rotary, form=RotaryForm.NONE, table=None)}
    config = with_windows(config, types, read_window(reader, types), rotaries=still)
    return decoder_model(reader, config, CheckpointLayout(), own={"logit_scale": scale})


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    document = decoder_document(
        file,
        architecture="cohere2",
        model_type="cohere2",
        class_name="Cohere2ForCausalLM",
        layer_norm="layer_norm_eps",
        also_read=("logit_scale", *WINDOW_KEYS),
    )
    check_one_base(file, "cohere2")
    document["logit_scale"] = number_below(file, "cohere2", "logit_scale", 1.0)
    return document | window_document(file, "cohere2", every=4)


FAMILY = Family(
    name="cohere2",
    models="Cohere 2 (Command R7B, Command A)",
    model_types=("cohere2",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "cohere2": GGUFArchitecture(
            config=_config_of_gguf, metadata=partial(decoder_metadata, keys=("logit_scale", WINDOW))
        )
    },
)
