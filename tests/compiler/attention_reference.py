"""Attention over the key-value cache in NumPy, and the rotation of heads by position."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.compiler.kernel_running import Array

THETA = 10000.0
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def _frequencies(head_dim: int, rule: dict[str, Any]) -> Array:
    """Angles a unit of position: the definitions of RoPE, and of Llama 3's scaling of it."""
    plain: Array = 1.0 / THETA ** (np.arange(head_dim // 2) * 2 / head_dim)
    if not rule:
        return plain
    low, high = rule["low_freq_factor"], rule["high_freq_factor"]
    turns = rule["original_max_position_embeddings"] * plain / (2 * np.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    mixed: Array = (1 - smooth) * plain / rule["factor"] + smooth * plain
    return mixed


def rotated(heads: Array, positions: Array, rule: dict[str, Any]) -> Array:
    """(tokens, heads, head_dim), each token at its position."""
    half = heads.shape[-1] // 2
    angles = positions[:, None, None] * _frequencies(2 * half, rule)
    low, high = heads[..., :half].astype(np.float64), heads[..., half:].astype(np.float64)
    cosine, sine = np.cos(angles), np.sin(angles)
    return np.concatenate([low * cosine - high * sine, high * cosine + low * sine], axis=-1)


def attended(queries: Array, keys: Array, values: Array, mask: Array) -> tuple[Array, Array]:
    """Results, and the base-2 logarithms of the softmax's denominators; mask (queries, keys)."""
    group = queries.shape[1] // keys.shape[1]
    keys, values = (np.repeat(array, group, axis=1).astype(np.float64) for array in (keys, values))
    scores = np.einsum("qhd,khd->hqk", queries.astype(np.float64), keys) / np.sqrt(queries.shape[-1])
    scores = np.where(mask[None], scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True)
    result = np.einsum("hqk,khd->qhd", weights / total, values)
    return result, ((largest + np.log(total))[..., 0] / np.log(2)).T
