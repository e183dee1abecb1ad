"""The fields of a `config.json` that tell of experts, by DeepSeek's names, from the metadata of a GGUF file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.gguf.mixture import mixture_fields

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

DEEPSEEK_MIXTURE_KEYS = (
    *("expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_count"),
    *("leading_dense_block_count", "expert_weights_scale"),
)
"""Metadata by their names without the architecture's."""


def deepseek_mixture_fields(file: GGUFFile, architecture: str) -> dict[str, object]:
    """How many experts there are, a token uses and all tokens use, their size, and how many layers have none."""
    mixture = mixture_fields(file, architecture)
    return {
        "n_routed_experts": mixture["num_experts"],
        "num_experts_per_tok": mixture["num_experts_per_tok"],
        "moe_intermediate_size": file.integer(f"{architecture}.expert_feed_forward_length"),
        "n_shared_experts": file.integer(f"{architecture}.expert_shared_count", 0) or None,
        "first_k_dense_replace": file.integer(f"{architecture}.leading_dense_block_count", 0),
    }
