"""Mamba 2: layers of a selective scan alone, whose state has one size for a text of any length.

Defaults are those of transformers' `Mamba2Config`.
"""

from __future__ import annotations

from mlcbuild.compiler.families.mamba2.gguf_metadata import config_of_gguf, metadata_of_model
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.recurrent_model import RecurrentModelConfig
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.state_space import read_state_space
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.recurrent_family import read_norm, recurrent_model

_NAMES = DecoderNames(
    embedding="backbone.embeddings",
    layers="backbone.layers",
    norm="backbone.norm_f",
    attention_norm="norm",
    recurrence="mixer",
)
# The authors' checkpoints have a shorter name of the embedding, which transformers reads too.
_LAYOUT = CheckpointLayout(
    embedding=TensorName("backbone.embeddings", "token_embd"),
    layers="backbone.layers",
    norm=TensorName("backbone.norm_f", "output_norm"),
    attention_norm=TensorName("norm", "attn_norm"),
    recurrence=TensorName("mixer"),
    other_names=(("backbone.embeddings.", "backbone.embedding."),),
)
_DEFAULTS: dict[str, object] = {
    "num_heads": 128,
    "head_dim": 64,
    "vocab_size": 32768,
    "hidden_size": 4096,
    "state_size": 128,
    "num_hidden_layers": 64,
    "expand": 2,
    "conv_kernel": 4,
    "n_groups": 8,
}


def resolve(reader: ConfigReader) -> FamilyModel[RecurrentModelConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    # There are no positions to scale, and all layers are of one kind: transformers fails with some of these.
    reader.refuse(hidden_act="silu", rope_scaling=None, rope_parameters=None, layer_types=None, per_layer_config={})
    hidden, norm = reader.integer("hidden_size", low=1, high=1 << 18), read_norm(reader)
    config = RecurrentModelConfig(
        hidden_size=hidden,
        vocab_size=reader.integer("vocab_size", low=1, high=1 << 22),
        num_layers=reader.integer("num_hidden_layers", low=1, high=1 << 12),
        norm=norm,
        recurrence=read_state_space(reader, hidden_size=hidden, norm_epsilon=norm.epsilon),
        tie_word_embeddings=reader.boolean("tie_word_embeddings", default=False),
        names=_NAMES,
    )
    return recurrent_model(config, _LAYOUT)


FAMILY = Family(
    name="mamba2",
    models="Mamba 2",
    model_types=("mamba2",),
    configuration=RecurrentModelConfig,
    resolve=resolve,
    gguf={"mamba2": GGUFArchitecture(config=config_of_gguf, metadata=metadata_of_model)},
    kv_state_kind="rnn_state",
)
