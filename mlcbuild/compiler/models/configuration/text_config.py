"""The text part of a vision-language model, which is built alone: its fields are the object `text_config`.

Names of tensors are those of transformers, which has the text part as `language_model` of the whole model or, since
4.52, of its `model`, and writes either.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader

_ROOT = "language_model."


def read_text_config(reader: ConfigReader, *model_types: str) -> ConfigReader:
    """A reader of `text_config`, whose `model_type` has to be one of these; it is the first where it is left out. What
    the whole model says of `tie_word_embeddings` comes first, as in transformers 5. Raises StageError for another
    type."""
    text = reader.table("text_config")
    model_type = text.string("model_type", default=model_types[0])
    if model_type not in model_types:
        known = " or ".join(f'"{name}"' for name in model_types)
        raise text.fail("model_type", f'is "{model_type}"; it has to be {known} here')
    fields: dict[str, object] = {"model_type": model_type}
    if reader.has("tie_word_embeddings"):
        fields["tie_word_embeddings"] = reader.value("tie_word_embeddings")
    return replace(text, document={**text.document, **fields})


def text_layout(layout: CheckpointLayout) -> CheckpointLayout:
    """The layout of a text part's tensors in the checkpoint of the whole model, whose other tensors are ignored."""
    return replace(
        layout.below(_ROOT),
        other_names=((f"{_ROOT}model.", f"model.{_ROOT}"), (f"{_ROOT}lm_head", "lm_head")),
        ignored=(*layout.ignored, r"(model\.)?vision_tower\..*", r"(model\.)?multi_modal_projector\..*"),
    )
