"""What families of models whose layers are recurrences alone make of a configuration: a `FamilyModel`."""

from __future__ import annotations

from mlcbuild.compiler.models.architecture.decoder import NormConfig
from mlcbuild.compiler.models.architecture.recurrence import StateSpaceConfig
from mlcbuild.compiler.models.architecture.recurrent_model import RecurrentModelConfig
from mlcbuild.compiler.models.chat_config import SIZES
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.checkpoints.recurrent_model_parameters import recurrent_model_parameters
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.family import FamilyModel
from mlcbuild.compiler.models.sizes import ContextLimits


def read_norm(reader: ConfigReader) -> NormConfig:
    return NormConfig(epsilon=reader.number("layer_norm_epsilon", low=1e-20, high=0.1, default=1e-5))


def recurrent_model(config: RecurrentModelConfig, layout: CheckpointLayout) -> FamilyModel[RecurrentModelConfig]:
    """The model of a configuration, whose checkpoints have this layout. Texts may be of any length."""
    return FamilyModel(
        configuration=config,
        vocab_size=config.vocab_size,
        layers=config.layers,
        limits=ContextLimits(max_position_embeddings=-1),
        chat_config=_chat_config(config),
        parameters=recurrent_model_parameters(config, layout),
    )


def _chat_config(config: RecurrentModelConfig) -> dict[str, object]:
    recurrence = config.recurrence
    assert isinstance(recurrence, StateSpaceConfig)  # there is no other model of recurrences alone
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
