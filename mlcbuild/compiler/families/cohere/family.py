"""Command R and Aya 23: attention and feed-forward in parallel behind one norm, neighbours turned.

Defaults are those of transformers' `CohereConfig`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import (
    DecoderConfig,
    NormConfig,
    NormKind,
    NormScope,
    QueryKeyNorm,
    Wiring,
    read_decoder,
)
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.numbers import number_below
from mlcbuild.compiler.models.gguf.writing import decoder_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_NAMES = DecoderNames(output="self_attn.out_proj", gate="mlp.gate_proj")
_CHAT_CONFIG = (
    *("model_type", "hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("intermediate_size", "layer_norm_eps", "position_embedding_base", "context_window_size", "prefill_chunk_size"),
    *("head_dim", "tensor_parallel_shards", "max_batch_size"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(
        max_position_embeddings=8192, layer_norm_eps=1e-5, rope_theta=500000.0, tie_word_embeddings=True
    )
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(
        reader,
        qkv_bias=bias,
        output_bias=bias,
        norm_field="layer_norm_eps",
        rotary_form=RotaryForm.NEIGHBOURS,
    )
    norm = NormConfig(epsilon=config.norm.epsilon, kind=NormKind.LAYER)
    attention = config.attention
    if reader.boolean("use_qk_norm", default=False):
        attention = replace(attention, query_key_norm=QueryKeyNorm(norm=norm, scope=NormScope.EACH_HEAD))
    config = replace(
        config,
        attention=attention,
        norm=norm,
        wiring=Wiring.PARALLEL_ONE_NORM,
        logit_scale=reader.number("logit_scale", low=1e-6, high=1e6, default=0.0625),
        names=_NAMES,
    )
    own = {"model_type": "cohere", "logit_scale": config.logit_scale}
    return decoder_model(reader, config, CheckpointLayout(), fields=_CHAT_CONFIG, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    document = decoder_document(
        file,
        architecture="command-r",
        model_type="cohere",
        class_name="CohereForCausalLM",
        layer_norm="layer_norm_eps",
        also_read=("logit_scale",),
    )
    norms = {"use_qk_norm": "blk.0.attn_q_norm.weight" in file.tensors}
    return document | norms | {"logit_scale": number_below(file, "command-r", "logit_scale", 1.0)}


FAMILY = Family(
    name="cohere",
    models="Command R and R+, Aya 23",
    model_types=("cohere",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "command-r": GGUFArchitecture(config=_config_of_gguf, metadata=partial(decoder_metadata, keys=("logit_scale",)))
    },
)
