"""The fields of a Hugging Face `config.json` that tell of experts, from the metadata of a GGUF file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.gguf.config import decoder_document

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

MIXTURE_KEYS = ("expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_feed_forward_length")
"""Metadata by their names without the architecture's."""
_SIZES = {
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
}


def mixture_document(file: GGUFFile, *, architecture: str, model_type: str, class_name: str) -> dict[str, object]:
    """`decoder_document` of a model with experts, with their number and their sizes."""
    document = decoder_document(
        file, architecture=architecture, model_type=model_type, class_name=class_name, also_read=MIXTURE_KEYS
    )
    return document | mixture_fields(file, architecture)


def mixture_fields(file: GGUFFile, architecture: str) -> dict[str, object]:
    """How many experts there are and a token uses, and their sizes, where the file has any of their own."""
    sizes = {
        field: file.integer(f"{architecture}.{key}")
        for field, key in _SIZES.items()
        if f"{architecture}.{key}" in file.metadata
    }
    return {
        "num_experts": file.integer(f"{architecture}.expert_count"),
        "num_experts_per_tok": file.integer(f"{architecture}.expert_used_count"),
        **sizes,
    }
