"""The Gemma 3 family, its text part: Gemma 2 with norms of queries and keys in place of capped scores, and rotary bases
of their own for layers with a window. `gemma3` is the vision-language model, of all sizes but 270M and 1B.

Defaults are those of transformers' `Gemma3TextConfig` where a `config.json` leaves a field out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, QueryKeyNorm, Wiring, read_cap, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.layer_types import (
    FULL,
    SLIDING,
    every_nth_is_full,
    read_layer_types,
    read_rotaries,
    read_window,
    with_windows,
)
from mlcbuild.compiler.models.configuration.text_config import read_text_config, text_layout
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document, head_size
from mlcbuild.compiler.models.gguf.numbers import number_below
from mlcbuild.compiler.models.gguf.windows import WINDOW, WINDOW_BASE, WINDOW_KEYS, window_document
from mlcbuild.compiler.models.gguf.writing import decoder_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_WRAPPER = "gemma3"
_DEFAULTS: dict[str, object] = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}
_LAYERS_OF_27B = 62
_HEADS = "gemma3.attention.head_count"
# MLC-LLM has the text part inside of a vision-language model.
_ROOT = "language_model."
_NAMES = DecoderNames(
    embedding=f"{_ROOT}model.embed_tokens",
    layers=f"{_ROOT}model.layers",
    norm=f"{_ROOT}model.norm",
    head=f"{_ROOT}lm_head",
    apart=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    feed_forward_norm="pre_feedforward_layernorm",
)
_LAYOUT = CheckpointLayout(feed_forward_norm=TensorName("pre_feedforward_layernorm", "ffn_norm"), one_added=True)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    layout = _LAYOUT
    if reader.string("model_type") == _WRAPPER:
        reader, layout = read_text_config(reader, "gemma3_text"), text_layout(layout)
    reader = reader.with_defaults(**_DEFAULTS).with_names(hidden_act="hidden_activation")
    reader.refuse(use_bidirectional_attention=False, attn_logit_softcapping=None)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias, rotary_form=RotaryForm.NONE)
    scalar = reader.number("query_pre_attn_scalar", low=1e-6, high=1e6)
    attention = replace(config.attention, softmax_scale=scalar**-0.5, query_key_norm=QueryKeyNorm(norm=config.norm))
    config = replace(
        config,
        attention=attention,
        wiring=Wiring.NORM_AROUND,
        embedding_scale=math.sqrt(config.hidden_size),
        logit_softcap=read_cap(reader, "final_logit_softcapping"),
        names=_NAMES,
    )
    layers = config.num_layers
    nth = reader.integer("sliding_window_pattern", low=1, high=1 << 12, default=6)
    types = read_layer_types(reader, layers=layers, default=every_nth_is_full(nth, layers=layers))
    scaling = reader.table("rope_scaling") if reader.has("rope_scaling") else None
    if scaling is not None and scaling.has("type") and not scaling.has("rope_type"):
        # transformers scales nothing then, which nobody means who writes it.
        raise reader.fail("rope_scaling", 'has "type", which counts for nothing here; write "rope_type"')
    rotaries = read_rotaries(
        reader,
        head_dim=attention.head_dim,
        bases={
            FULL: reader.number("rope_theta", low=1.0, high=1e12, default=1e6),
            SLIDING: reader.number("rope_local_base_freq", low=1.0, high=1e12, default=1e4),
        },
    )
    config = with_windows(config, types, read_window(reader, types), rotaries=rotaries)
    own = {"query_pre_attn_scalar": scalar, "rope_local_base_freq": rotaries[SLIDING].base}
    return decoder_model(reader, config, layout, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp has it, what scores are scaled by follows from the number of layers."""
    cap = "final_logit_softcapping"
    document = decoder_document(
        file,
        architecture="gemma3",
        model_type="gemma3_text",
        class_name="Gemma3ForCausalLM",
        hidden_act="gelu_pytorch_tanh",
        also_read=(cap, *WINDOW_KEYS),
    )
    document["query_pre_attn_scalar"] = head_size(file, "gemma3")
    if file.integer("gemma3.block_count") == _LAYERS_OF_27B:
        document["query_pre_attn_scalar"] = file.integer("gemma3.embedding_length") // file.integer(_HEADS)
    document |= {
        cap: number_below(file, "gemma3", cap, 0.0) or None,
        "rope_local_base_freq": number_below(file, "gemma3", WINDOW_BASE, 10000.0),
    }
    return document | window_document(file, "gemma3", every=6)


FAMILY = Family(
    name="gemma3",
    models="Gemma 3 (text)",
    model_types=("gemma3_text", _WRAPPER),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "gemma3": GGUFArchitecture(
            config=_config_of_gguf,
            metadata=partial(decoder_metadata, keys=("final_logit_softcapping", WINDOW, WINDOW_BASE)),
        )
    },
)
