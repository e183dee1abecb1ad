"""The Gemma 2 family: norms before and behind attention and feed-forward, scores and logits that are capped, and a
sliding window in every other layer.

Defaults are those of transformers' `Gemma2Config` where a `config.json` leaves a field out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, Wiring, read_cap, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.layer_types import (
    every_nth_is_full,
    read_layer_types,
    read_window,
    with_windows,
)
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document, head_size
from mlcbuild.compiler.models.gguf.numbers import number_below
from mlcbuild.compiler.models.gguf.windows import WINDOW, WINDOW_KEYS, check_one_base, window_document
from mlcbuild.compiler.models.gguf.writing import decoder_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS: dict[str, object] = {
    "vocab_size": 256000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
}
_LAYERS_OF_27B = 46
_HEADS = "gemma2.attention.head_count"
_NAMES = DecoderNames(feed_forward_norm="pre_feedforward_layernorm")
_LAYOUT = CheckpointLayout(feed_forward_norm=TensorName("pre_feedforward_layernorm", "ffn_norm"), one_added=True)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS).with_names(hidden_act="hidden_activation")
    reader.refuse(use_bidirectional_attention=False)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias)
    scalar = reader.number("query_pre_attn_scalar", low=1e-6, high=1e6)
    attention = replace(
        config.attention, softmax_scale=scalar**-0.5, soft_cap=read_cap(reader, "attn_logit_softcapping")
    )
    config = replace(
        config,
        attention=attention,
        wiring=Wiring.NORM_AROUND,
        embedding_scale=math.sqrt(config.hidden_size),
        logit_softcap=read_cap(reader, "final_logit_softcapping"),
        names=_NAMES,
    )
    layers = config.num_layers
    types = read_layer_types(reader, layers=layers, default=every_nth_is_full(2, layers=layers))
    config = with_windows(config, types, read_window(reader, types))
    own = {
        "query_pre_attn_scalar": scalar,
        "attn_logit_softcapping": attention.soft_cap or None,
        "final_logit_softcapping": config.logit_softcap or None,
    }
    return decoder_model(reader, config, _LAYOUT, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp has it, what scores are scaled by follows from the number of layers."""
    caps = ("attn_logit_softcapping", "final_logit_softcapping")
    document = decoder_document(
        file,
        architecture="gemma2",
        model_type="gemma2",
        class_name="Gemma2ForCausalLM",
        hidden_act="gelu_pytorch_tanh",
        also_read=(*caps, *WINDOW_KEYS),
    )
    check_one_base(file, "gemma2")
    document["query_pre_attn_scalar"] = head_size(file, "gemma2")
    if file.integer("gemma2.block_count") == _LAYERS_OF_27B:
        document["query_pre_attn_scalar"] = file.integer("gemma2.embedding_length") // file.integer(_HEADS)
    for cap in caps:
        if f"gemma2.{cap}" in file.metadata:
            document[cap] = number_below(file, "gemma2", cap, 0.0) or None
    return document | window_document(file, "gemma2", every=2, window=4096)


FAMILY = Family(
    name="gemma2",
    models="Gemma 2",
    model_types=("gemma2",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "gemma2": GGUFArchitecture(
            config=_config_of_gguf,
            metadata=partial(decoder_metadata, keys=("attn_logit_softcapping", "final_logit_softcapping", WINDOW)),
        )
    },
)
