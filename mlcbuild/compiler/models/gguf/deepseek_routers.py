"""The fields of a `config.json` that tell of DeepSeek's routers, from the metadata of a GGUF file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.gguf.numbers import number_below

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

DEEPSEEK_ROUTER_KEYS = (
    "expert_weights_norm",
    "expert_gating_func",
    "expert_group_count",
    "expert_group_used_count",
)
"""Metadata by their names without the architecture's, beside `expert_weights_scale`."""
_SOFTMAX, _SIGMOID = 1, 2  # llama.cpp's numbers


def has_sigmoid_router(file: GGUFFile, architecture: str) -> bool:
    """Whether it is V3's, and not V2's."""
    return file.integer(f"{architecture}.expert_gating_func", _SOFTMAX) == _SIGMOID


def deepseek_router_fields(file: GGUFFile, architecture: str) -> dict[str, object]:
    """As llama.cpp reads them."""
    groups = file.integer(f"{architecture}.expert_group_count", 1) or 1
    fields: dict[str, object] = {
        "routed_scaling_factor": number_below(file, architecture, "expert_weights_scale", 1.0),
        "norm_topk_prob": file.metadata.get(f"{architecture}.expert_weights_norm", False),
        "n_group": groups,
        "topk_group": file.integer(f"{architecture}.expert_group_used_count", 1) or 1,
    }
    if not has_sigmoid_router(file, architecture):
        fields["topk_method"] = "greedy" if groups == 1 else "group_limited_greedy"
    return fields
