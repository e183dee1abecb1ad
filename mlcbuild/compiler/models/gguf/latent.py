"""The fields of a `config.json` that tell of multi-head latent attention, from the metadata of a GGUF file, and these
metadata from a decoder. As llama.cpp computes it, heads share one key: the latent vector and the rotated part behind
it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import AttentionConfig
from mlcbuild.compiler.models.gguf.written import Value
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

LATENT_KEYS = (
    *("attention.q_lora_rank", "attention.kv_lora_rank", "attention.key_length_mla", "attention.value_length_mla"),
    "attention.value_length",
)
"""Metadata by their names without the architecture's."""


def latent_document(file: GGUFFile, architecture: str) -> dict[str, object]:
    """Ranks and sizes of heads, whose keys are one each. Raises StageError for files of older converters, which have
    `attn_k_b` and `attn_v_b` in one."""

    def number(key: str, default: int | None = None) -> int:
        return file.integer(f"{architecture}.{key}", *(() if default is None else (default,)))

    if f"{architecture}.attention.key_length_mla" not in file.metadata:
        raise StageError(
            f"{file.path} is of an older llama.cpp: it has no {architecture}.attention.key_length_mla",
            advice=("convert the model again, or import it from a Hugging Face directory",),
        )
    rotated = number("rope.dimension_count")
    return {
        "num_key_value_heads": number("attention.head_count"),
        "q_lora_rank": number("attention.q_lora_rank", 0) or None,
        "kv_lora_rank": number("attention.kv_lora_rank"),
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": number("attention.key_length_mla") - rotated,
        "v_head_dim": number("attention.value_length_mla"),
    }


def latent_metadata(attention: AttentionConfig) -> dict[str, Value]:
    """The inverse of `latent_document`."""
    latent = attention.latent
    assert latent is not None
    own: dict[str, Value] = {
        "attention.head_count_kv": 1,
        "attention.key_length": latent.kept_dim,
        "attention.value_length": latent.rank,
        "attention.key_length_mla": attention.head_dim,
        "attention.value_length_mla": latent.value_dim,
        "attention.kv_lora_rank": latent.rank,
    }
    return own | ({"attention.q_lora_rank": latent.query_rank} if latent.query_rank else {})
