"""The models of checks/write.py for JAX, with their names of weights."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WIDTH, HEADS, INNER, PAST, TOKENS = 64, 4, 176, 5, 3
HEAD = WIDTH // HEADS
Made = tuple[Any, dict[str, jax.ShapeDtypeStruct], tuple[jax.ShapeDtypeStruct, ...]]


def exact(compute: Callable[..., Any]) -> Callable[..., Any]:
    """GPUs would otherwise round what they multiply to fewer bits."""

    @functools.wraps(compute)
    def computed(*arguments: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return compute(*arguments)

    return computed


def floats(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def mlp(batch: int = 8) -> Made:
    @exact
    def compute(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return jnp.maximum(x @ weights["w1"] + weights["b1"], 0) @ weights["w2"]

    return compute, {"w1": floats(64, 256), "b1": floats(256), "w2": floats(256, 64)}, (floats(batch, 64),)


def block() -> Made:
    def convolved(x: jax.Array, weight: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(x, weight, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))

    @exact
    def compute(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return convolved(jnp.maximum(convolved(x, weights["w1"]), 0), weights["w2"]) + x

    return compute, {"w1": floats(16, 16, 3, 3), "w2": floats(16, 16, 3, 3)}, (floats(1, 16, 12, 12),)


def layer() -> Made:
    positions = np.arange(PAST, PAST + TOKENS)[:, None] / 10000 ** (np.arange(HEAD // 2) * 2 / HEAD)
    angles = np.concatenate([positions, positions], axis=1)
    cos, sin = np.cos(angles).astype("f4"), np.sin(angles).astype("f4")
    seen = np.arange(PAST + TOKENS)[None] <= np.arange(PAST, PAST + TOKENS)[:, None]
    mask = np.where(seen, 0.0, -1e9).astype("f4")

    def normed(x: jax.Array, weight: jax.Array) -> jax.Array:
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight

    def heads(x: jax.Array) -> jax.Array:
        return x.reshape(1, TOKENS, HEADS, HEAD).transpose(0, 2, 1, 3)

    def turned(x: jax.Array) -> jax.Array:
        low, high = jnp.split(x, 2, axis=-1)
        return x * cos + jnp.concatenate([-high, low], -1) * sin

    @exact
    def compute(
        w: dict[str, jax.Array], x: jax.Array, past_keys: jax.Array, past_values: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        normal = normed(x, w["norm1"])
        keys = jnp.concatenate([past_keys, turned(heads(normal @ w["wk"]))], 2)
        values = jnp.concatenate([past_values, heads(normal @ w["wv"])], 2)
        scores = turned(heads(normal @ w["wq"])) @ keys.transpose(0, 1, 3, 2) * HEAD**-0.5 + mask
        mixed = (jax.nn.softmax(scores, -1) @ values).transpose(0, 2, 1, 3).reshape(1, TOKENS, WIDTH)
        middle = x + mixed @ w["wo"]
        normal = normed(middle, w["norm2"])
        return middle + jax.nn.silu(normal @ w["gate"]) * (normal @ w["up"]) @ w["down"], keys, values

    weights = {name: floats(WIDTH, WIDTH) for name in ("wq", "wk", "wv", "wo")}
    weights |= {"norm1": floats(WIDTH), "norm2": floats(WIDTH), "down": floats(INNER, WIDTH)}
    weights |= {name: floats(WIDTH, INNER) for name in ("gate", "up")}
    past = floats(1, HEADS, PAST, HEAD)
    return compute, weights, (floats(1, TOKENS, WIDTH), past, past)
