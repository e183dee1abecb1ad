"""Mamba 2: layers of a selective scan alone, whose state has one size for a text of any length.

Defaults are those of transformers' `Mamba2Config`.
"""

from __future__ import annotations

from mlcbuild.compiler.families.mamba2.gguf_metadata import config_of_gguf, metadata_of_model
from mlcbuild.compiler.models.architecture.decoder import NormConfig
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.recurrence import StateSpaceConfig
from mlcbuild.compiler.models.architecture.recurrent_model import RecurrentModelConfig
from mlcbuild.compiler.models.chat_config import SIZES
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.checkpoints.recurrent_model_parameters import recurrent_model_parameters
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.state_space import read_step_limits
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.sizes import ContextLimits

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
    reader.refuse(hidden_act="silu")
    hidden = reader.integer("hidden_size", low=1, high=1 << 18)
    norm = NormConfig(epsilon=reader.number("layer_norm_epsilon", low=1e-20, high=0.1, default=1e-5))
    recurrence = _state_space(reader, hidden, norm)
    config = RecurrentModelConfig(
        hidden_size=hidden,
        vocab_size=reader.integer("vocab_size", low=1, high=1 << 22),
        num_layers=reader.integer("num_hidden_layers", low=1, high=1 << 12),
        norm=norm,
        recurrence=recurrence,
        tie_word_embeddings=reader.boolean("tie_word_embeddings", default=False),
        names=_NAMES,
    )
    return FamilyModel(
        configuration=config,
        vocab_size=config.vocab_size,
        layers=config.layers,
        limits=ContextLimits(max_position_embeddings=-1),
        chat_config=_chat_config(config, recurrence),
        parameters=recurrent_model_parameters(config, _LAYOUT),
    )


def _state_space(reader: ConfigReader, hidden: int, norm: NormConfig) -> StateSpaceConfig:
    heads = reader.integer("num_heads", low=1, high=1 << 12)
    head_dim = reader.integer("head_dim", low=1, high=1 << 12)
    groups = reader.integer("n_groups", low=1, high=1 << 12)
    inner = reader.number("expand", low=1e-3, high=1e3) * hidden
    if inner != heads * head_dim:
        raise reader.fail("num_heads", f'times "head_dim" is {heads * head_dim}; "expand" says that it is {inner:g}')
    if heads % groups:
        raise reader.fail("n_groups", f'is {groups}; it has to divide "num_heads", which is {heads}')
    least, most = read_step_limits(reader)
    return StateSpaceConfig(
        heads=heads,
        head_dim=head_dim,
        groups=groups,
        state_size=reader.integer("state_size", low=1, high=1 << 12),
        convolution=reader.integer("conv_kernel", low=2, high=16),
        convolution_bias=reader.boolean("use_conv_bias", default=True),
        bias=reader.boolean("use_bias", default=False),
        norm_epsilon=norm.epsilon,
        least_step=least,
        most_step=most,
    )


def _chat_config(config: RecurrentModelConfig, recurrence: StateSpaceConfig) -> dict[str, object]:
    return {
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_heads": recurrence.heads,
        "head_dim": recurrence.head_dim,
        "n_groups": recurrence.groups,
        "state_size": recurrence.state_size,
        "conv_kernel": recurrence.convolution,
        "layer_norm_epsilon": config.norm.epsilon,
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": config.tie_word_embeddings,
        **dict.fromkeys(SIZES),
    }


FAMILY = Family(
    name="mamba2",
    models="Mamba 2",
    model_types=("mamba2",),
    configuration=RecurrentModelConfig,
    resolve=resolve,
    gguf={"mamba2": GGUFArchitecture(config=config_of_gguf, metadata=metadata_of_model)},
    kv_state_kind="rnn_state",
)
