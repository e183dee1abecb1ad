"""The factors of a Granite, by the fields of a `config.json`, from the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.gguf.config import head_size
from mlcbuild.compiler.models.gguf.numbers import number_below
from mlcbuild.compiler.models.gguf.writing import decoder_metadata
from mlcbuild.compiler.models.gguf.written import GGUFMetadata, Value, WrittenModel

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

SCALE_KEYS = ("attention.scale", "embedding_scale", "residual_scale", "logit_scale")
"""Metadata by their names without the architecture's."""
_FIELDS = ("attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling")


def granite_factors(file: GGUFFile, architecture: str) -> dict[str, object]:
    """What scores before the softmax, embeddings and what a layer adds are multiplied by, and logits divided by."""
    defaults = (head_size(file, architecture) ** -0.5, 1.0, 1.0, 1.0)
    values = (number_below(file, architecture, key, default) for key, default in zip(SCALE_KEYS, defaults, strict=True))
    return dict(zip(_FIELDS, values, strict=True))


def granite_metadata(
    model: WrittenModel,
    *,
    keys: Collection[str] = (),
    own: Mapping[str, Value] | None = None,
    attention: bool = True,
) -> GGUFMetadata:
    """The metadata of a decoder with these factors, but for that of scores without `attention`: logits are divided.
    `keys` and `own` are those of `decoder_metadata`."""
    scales = SCALE_KEYS if attention else SCALE_KEYS[1:]
    divisor = 1 / model.configuration.logit_scale
    return decoder_metadata(model, keys=(*keys, *scales), own={"logit_scale": divisor, **(own or {})})
