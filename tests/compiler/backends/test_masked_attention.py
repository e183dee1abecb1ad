"""Attention of padded texts: every token sees all tokens of its text that are not masked, on each backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlcbuild.compiler.backends.cpu.kernels import masked_attention as cpu
from mlcbuild.compiler.backends.cuda.kernels import masked_attention as cuda
from mlcbuild.errors import StageError
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import run_cuda
from tests.compiler.kernel_running import run
from tests.compiler.running import Array

needs_gxx = pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")
# Texts longer than a block's queries and its keys, and short ones; heads of several sizes.
SHAPES = [(2, 37, 2, 32), (3, 5, 1, 64), (1, 33, 1, 24), (1, 34, 1, 128), (2, 1, 2, 16)]

Attend = Callable[[Array, Array, int], Array]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gxx)])
def attend(request: pytest.FixtureRequest, tmp_path: Path) -> Attend:
    """Of queries, keys and values (tokens, 3 heads, size), a mask, and a number of heads: (tokens, heads, size)."""

    def attended(qkv: Array, mask: Array, heads: int) -> Array:
        size, dtype = qkv.shape[-1], str(qkv.dtype)
        arrays = [qkv, mask, np.full((len(qkv), heads, size), np.nan, dtype)]
        if request.param == "cpu":
            return run(cpu.masked_attention(heads, size, dtype), arrays)[-1]
        return run_cuda(cuda.masked_attention(heads, size, dtype), arrays, tmp_path)[-1]

    return attended


def _given(texts: int, length: int, heads: int, size: int, dtype: str) -> tuple[Array, Array]:
    random = np.random.default_rng(3)
    qkv = (random.standard_normal((texts * length, 3 * heads, size)) * 2).astype(dtype)
    mask = (random.random((texts, length)) < 0.6).astype("int32")
    mask[0, 0] = 5  # anything but 0
    return qkv, mask


def _expected(qkv: Array, mask: Array, heads: int) -> Array:
    texts, length = mask.shape
    parts = qkv.astype(np.float64).reshape(texts, length, 3, heads, -1)
    q, k, v = (parts[:, :, part] for part in range(3))
    scores = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(qkv.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True)) * (mask != 0)[:, None, None, :]
    total = weights.sum(axis=-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    result: Array = np.einsum("bhij,bjhd->bihd", weights, v).reshape(texts * length, heads, -1)
    return result


@pytest.mark.parametrize(
    ("shape", "dtype"), [*((shape, "float32") for shape in SHAPES), (SHAPES[0], "float16"), (SHAPES[3], "float16")]
)
def test_a_token_sees_what_is_not_masked(attend: Attend, shape: tuple[int, int, int, int], dtype: str) -> None:
    qkv, mask = _given(*shape, dtype)
    tolerance = 2e-3 if dtype == "float16" else 1e-5
    found = attend(qkv, mask, shape[2])
    np.testing.assert_allclose(found, _expected(qkv, mask, shape[2]), rtol=tolerance, atol=tolerance)


def test_a_text_of_masked_tokens_alone_has_zeros(attend: Attend) -> None:
    qkv, mask = _given(2, 4, 2, 16, "float32")
    mask[1] = 0
    found = attend(qkv, mask, 2)
    assert not found[4:].any()
    assert np.isfinite(found).all()


def test_heads_that_a_gpu_has_no_memory_for_are_refused() -> None:
    with pytest.raises(StageError, match="whose heads have 192 elements, more than 128"):
        cuda.masked_attention(2, 192, "float16")
