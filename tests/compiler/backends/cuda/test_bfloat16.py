"""A model in bfloat16 on a GPU: every kernel's own CUDA text, run on the CPU, says what the kernel says there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm.relax.frontend.nn.llm._decode_kernels import _attention_decode
from tvm.relax.frontend.nn.llm._prefill_kernels import _attention_prefill, _attention_prefill_ragged
from tvm.relax.frontend.nn.llm.position_embedding import llama_rope_with_position_map

from mlcbuild.compiler.script_parsing import quick_script_parsing
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler.attention_reference import THETA, attended, rotated
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import CUDA_TARGET, run_cuda
from tests.compiler.backends.cuda.model_kernels import compare_kernels, scheduled
from tests.compiler.kernel_running import Array

needs_gxx = pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")
BFLOAT16 = dtype_of("bfloat16")
_TARGET = tvm.target.Target(CUDA_TARGET)
_EPSILON = 2.0**-7


@pytest.fixture(scope="module")
def checked() -> set[int]:
    return set()


@needs_gxx
@pytest.mark.slow
@pytest.mark.parametrize("quantization", ["q4bf16_1", "q0bf16"])
def test_kernels_of_a_model_say_the_same_on_a_gpu_and_on_a_cpu(
    tmp_path: Path, quantization: str, checked: set[int]
) -> None:
    found = compare_kernels(quantization, tmp_path, dtype="bfloat16", tolerance=_EPSILON, checked=checked)
    assert found >= 13


# TVM's own kernels of the cache, two key heads with two query heads each.

_HEADS, _KEY_HEADS, _DIM = 4, 2, 32
_SCALARS = (1.0, THETA, _DIM**-0.5)


def _numbers(*shape: int) -> Array:
    numbers: Array = np.random.default_rng(sum(shape)).standard_normal(shape).astype(BFLOAT16)
    return numbers


def _close(found: Array, expected: Array) -> None:
    np.testing.assert_allclose(found.astype(np.float64), expected, atol=_EPSILON * np.abs(expected).max())


@needs_gxx
@pytest.mark.slow
def test_a_token_attends_to_what_the_cache_holds(tmp_path: Path) -> None:
    with quick_script_parsing():
        kernel = _attention_decode(_KEY_HEADS, _HEADS, _DIM, "bfloat16", False, {}, _TARGET)
    cache, queries = _Cache([17, 33, 5]), _numbers(3, _HEADS, _DIM)
    results = [np.zeros_like(queries), np.zeros((3, _HEADS), np.float32)]
    positions = np.zeros(3, np.int32)
    found = run_cuda(kernel, [queries, *cache.arrays, positions, positions, *results], tmp_path, 0, *_SCALARS)
    for sequence, length in enumerate(cache.lengths):
        expected, _ = attended(queries[sequence : sequence + 1], *cache.of(sequence), np.ones((1, length), bool))
        _close(found[7][sequence], expected[0])


@needs_gxx
@pytest.mark.slow
def test_pieces_of_a_prompt_attend_to_the_cache(tmp_path: Path) -> None:
    with quick_script_parsing():
        kernel = _attention_prefill(_KEY_HEADS, _HEADS, _DIM, "bfloat16", False, {}, _TARGET)
    cache, counts = _Cache([40, 9]), [5, 9]
    starts, queries = np.cumsum([0, *counts]).astype(np.int32), _numbers(14, _HEADS, _DIM)
    arrays = [queries, starts, *cache.arrays, np.zeros(2, np.int32), np.zeros(14, np.int32)]
    results = [np.zeros_like(queries), np.zeros((14, _HEADS), np.float32)]
    found = run_cuda(kernel, [*arrays, *results], tmp_path, 0, 0, *_SCALARS)
    for sequence, length in enumerate(cache.lengths):
        part = slice(starts[sequence], starts[sequence + 1])
        mask = np.ones((counts[sequence], length), bool)
        _close(found[8][part], attended(queries[part], *cache.of(sequence), mask)[0])


@needs_gxx
@pytest.mark.slow
def test_tokens_attend_to_those_before_them(tmp_path: Path) -> None:
    with quick_script_parsing():
        kernel = _attention_prefill_ragged(_KEY_HEADS, _HEADS, _DIM, _DIM, "bfloat16", {}, _TARGET)
    lengths = [7, 1, 20]
    starts, total = np.cumsum([0, *lengths]).astype(np.int32), sum(lengths)
    queries, keys, values = _numbers(total, _HEADS, _DIM), _numbers(total, _KEY_HEADS, _DIM), _numbers(total, 2, _DIM)
    places = np.concatenate([np.arange(length) for length in lengths]).astype(np.int32)
    results = [np.zeros_like(queries), np.zeros((total, _HEADS), np.float32)]
    arrays = [queries, starts, keys, values, starts, places, np.zeros(3, np.int32), *results]
    found = run_cuda(kernel, arrays, tmp_path, 1, 0, *_SCALARS)
    for sequence, length in enumerate(lengths):
        part = slice(starts[sequence], starts[sequence + 1])
        _close(found[7][part], attended(queries[part], keys[part], values[part], np.tri(length, dtype=bool))[0])


@needs_gxx
@pytest.mark.slow
def test_queries_and_keys_are_rotated_by_their_positions(tmp_path: Path) -> None:
    with quick_script_parsing():
        original = llama_rope_with_position_map(THETA, 1.0, _DIM, _HEADS, _KEY_HEADS, "bfloat16", {}, _DIM)
    packed, positions = _numbers(7, 8, _DIM), np.arange(100, 107, dtype=np.int32)
    results = [np.zeros((7, heads, _DIM), BFLOAT16) for heads in (_HEADS, _KEY_HEADS, _KEY_HEADS)]
    found = run_cuda(scheduled(original), [packed, positions, *results], tmp_path, 1)
    _close(np.concatenate(found[2:4], axis=1), rotated(packed[:, :6], positions, {}))
    np.testing.assert_array_equal(found[4], packed[:, 6:])


class _Cache:
    """A paged cache with sequences of the given lengths, their pages in any order."""

    def __init__(self, lengths: list[int]) -> None:
        counts = [-(-length // 16) for length in lengths]
        self.lengths = lengths
        self.pages = _numbers(sum(counts) + 3, 2, _KEY_HEADS, 16, _DIM)
        self.starts = np.cumsum([0, *counts]).astype(np.int32)
        self.numbers = np.random.default_rng(1).permutation(len(self.pages))[: sum(counts)].astype(np.int32)
        last = np.array([(length - 1) % 16 + 1 for length in lengths], np.int32)
        self.arrays = [self.pages, self.starts, self.numbers, last]

    def of(self, sequence: int) -> tuple[Array, Array]:
        """Keys and values (length, heads, dim)."""
        used = self.pages[self.numbers[self.starts[sequence] : self.starts[sequence + 1]]]
        rows = used.transpose(1, 0, 3, 2, 4).reshape(2, -1, _KEY_HEADS, _DIM)[:, : self.lengths[sequence]]
        return rows[0], rows[1]
