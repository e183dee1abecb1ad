"""The fields of a `config.json` that tell of experts in every n-th layer, as Llama 4's has them, from the metadata of a
GGUF file, and these metadata from a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.gguf.mixture import MIXTURE_KEYS, mixture_fields
from mlcbuild.compiler.models.gguf.written import Value, WrittenModel
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_STEP, _FIRST_DENSE = "interleave_moe_layer_step", "leading_dense_block_count"
INTERLEAVED_MIXTURE_KEYS = (*MIXTURE_KEYS, _STEP, _FIRST_DENSE, "expert_shared_count")
"""Metadata by their names without the architecture's."""


def interleaved_mixture_fields(file: GGUFFile, architecture: str) -> dict[str, object]:
    """Layers without experts have a feed-forward of another size. Raises StageError for first layers without experts,
    which no such model has."""
    if file.integer(f"{architecture}.{_FIRST_DENSE}", 0):
        raise StageError(f"{file.path} has first layers without experts, which is not supported")
    mixture = mixture_fields(file, architecture)
    return {
        "num_local_experts": mixture["num_experts"],
        "num_experts_per_tok": mixture["num_experts_per_tok"],
        "intermediate_size": file.integer(f"{architecture}.expert_feed_forward_length"),
        "intermediate_size_mlp": file.integer(f"{architecture}.feed_forward_length"),
        _STEP: file.integer(f"{architecture}.{_STEP}"),
    }


def interleaved_mixture_metadata(model: WrittenModel) -> dict[str, Value]:
    """The inverse of `interleaved_mixture_fields`, beside the keys of all mixtures."""
    dense = model.integer("intermediate_size_mlp")
    return {_STEP: model.integer(_STEP) or 1, **({} if dense is None else {"feed_forward_length": dense})}
