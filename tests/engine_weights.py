"""Random weights of a library as its metadata describes them, made where there is neither compiler nor checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcbuild.compiler.quantization.group.scheme import GroupScheme
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.compiler.quantization.unquantized.scheme import UnquantizedScheme
from mlcbuild.rules.schemes import scheme
from mlcbuild.runtime.expected_tensor import ExpectedTensor

Array = npt.NDArray[Any]

_WORDS, _SCALES = "q_weight", "q_scale"


def random_weights(tensors: Sequence[ExpectedTensor], quantization: str) -> dict[str, Array]:
    """By name, in order. Activations stay of one size through each matrix, so that logits say something.

    Raises ValueError for a scheme whose numbers are not made here.
    """
    of, random = scheme(quantization), np.random.default_rng(0)
    if not isinstance(of, GroupScheme | UnquantizedScheme):
        raise ValueError(f"random weights of {quantization} are not known here: its kind is {of.kind}")
    made: dict[str, Array] = {}
    for tensor in tensors:
        made[tensor.name] = _numbers(random, tensor, of, made)
    return made | _absorbed(made, of)


def _numbers(
    random: np.random.Generator, tensor: ExpectedTensor, of: QuantizationScheme, before: Mapping[str, Array]
) -> Array:
    shape = tuple(tensor.shape)
    if tensor.dtype == "uint32":
        return random.integers(0, 2**32, shape, dtype=np.uint32)
    if tensor.name.endswith(_SCALES) and isinstance(of, GroupScheme):
        words = before[tensor.name.removesuffix(_SCALES) + _WORDS]
        columns = shape[_grouped_axis(words, shape)] * of.group_size
        # Integers of all values alike are 2^bits / √12 far from 0 in the mean, and numbers from 0 to 1 are 1 / √3.
        numbers = random.random(shape) * 6 / (2**of.bits * columns**0.5)
    elif len(shape) == 1:
        numbers = 1 + 0.1 * random.standard_normal(shape)
    else:
        numbers = random.standard_normal(shape) / shape[-1] ** 0.5
    return np.asarray(numbers.astype(tensor.dtype))


def _grouped_axis(words: Array, scales: Sequence[int]) -> int:
    """The axis along which a scale is shared: the last, or the first of a matrix that is stored by columns."""
    return next(axis for axis, size in enumerate(scales) if size != words.shape[axis])


def _absorbed(weights: Mapping[str, Array], of: QuantizationScheme) -> dict[str, Array]:
    """The parts of latent attention's matrix `kv_b_proj` by which it reads the cache, (heads, rank, keys) and (heads,
    values, rank): a model that stores them twice has to compute the same by both."""
    made = {}
    for name, keys in weights.items():
        if not name.endswith(".w_uk"):
            continue
        attention = name.removesuffix("w_uk")
        values = weights[f"{attention}w_uv"]
        stem = f"{attention}kv_b_proj."
        stored = weights.get(f"{stem}weight")
        if stored is None:
            assert isinstance(of, GroupScheme)
            stored = _restored(weights[stem + _WORDS], weights[stem + _SCALES], of)[:, : keys.shape[1]]
        each = stored.reshape(keys.shape[0], -1, keys.shape[1])
        made[name] = each[:, : keys.shape[2]].transpose(0, 2, 1).astype(keys.dtype)
        made[f"{attention}w_uv"] = each[:, keys.shape[2] :].astype(values.dtype)
    return made


def _restored(words: Array, scales: Array, of: GroupScheme) -> Array:
    """The matrix (out, in), its last group whole, that words of integers from the low end and their scales stand
    for."""
    if _grouped_axis(words, scales.shape) == 0:
        words, scales = words.T, scales.T
    shifts = np.arange(of.elements_per_word, dtype=np.uint32) * np.uint32(of.bits)
    codes = (words[..., None] >> shifts) & np.uint32(2**of.bits - 1)
    integers = codes.reshape(*scales.shape, of.group_size).astype(np.float32) - of.max_int
    restored: Array = (integers * scales[..., None].astype(np.float32)).reshape(len(scales), -1)
    return restored
