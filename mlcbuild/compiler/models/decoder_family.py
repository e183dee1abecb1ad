"""What most families of decoders make of a `DecoderConfig`: a `FamilyModel`."""

from __future__ import annotations

from collections.abc import Mapping

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_limits
from mlcbuild.compiler.models.chat_config import LLAMA, chat_config
from mlcbuild.compiler.models.checkpoints.decoder_parameters import decoder_parameters
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.layer_types import window_fields
from mlcbuild.compiler.models.family import FamilyModel
from mlcbuild.compiler.models.sizes import ContextLimits


def decoder_model(
    reader: ConfigReader,
    config: DecoderConfig,
    layout: CheckpointLayout,
    *,
    fields: tuple[str, ...] = LLAMA,
    limits: ContextLimits | None = None,
    own: Mapping[str, object] | None = None,
) -> FamilyModel[DecoderConfig]:
    """The model of a configuration, whose checkpoints have this layout. `fields` and `own` are those of
    `chat_config.chat_config`; without `limits`, attention sees all of the text."""
    own = {**(own or {}), **window_fields(config)}
    if config.attention.rotary.table is not None:
        scaling = reader.value("rope_scaling") or reader.value("rope_parameters")
        own = {"rope_scaling": scaling, **own} if scaling else own
    return FamilyModel(
        configuration=config,
        vocab_size=config.vocab_size,
        layers=config.layers,
        limits=limits or read_limits(reader),
        chat_config=chat_config(config, fields, own),
        parameters=decoder_parameters(config, layout),
    )
