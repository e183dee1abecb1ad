"""Softmax and sampling on a GPU: the numbers of the kernels' own CUDA text, run on the CPU, against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm
from tvm import relax, tirx

from mlcbuild.compiler.backends.cuda.kernels import sampling, softmax
from mlcbuild.compiler.backends.cuda.passes.attach_gpu_sampling import attach_gpu_sampling
from mlcbuild.compiler.backends.cuda.schedule import SCHEDULING
from mlcbuild.compiler.kernels.scheduling import apply_rules
from mlcbuild.compiler.kernels.workspace import lift_global_buffers
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import CUDA_TARGET, run_cuda

Array = npt.NDArray[Any]

TARGET = tvm.target.Target(CUDA_TARGET)
pytestmark = pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")
WIDTH = 3001
NUMBERS = np.array([0, 0.999999, 0.3, 0.7, 0.52], np.float32)
ROWS = np.array([0, 1, 2, 2, 0], np.int32)
TOP_P = np.array([0.9, 0.5, 0.05], np.float32)


def _probabilities() -> Array:
    """Three rows, a few tokens of which have most of the probability."""
    heavy = np.random.default_rng(0).random((3, WIDTH)) ** 8
    result: Array = (heavy / heavy.sum(axis=1, keepdims=True)).astype(np.float32)
    return result


def _sorted(probabilities: Array) -> tuple[Array, Array]:
    order = np.argsort(-probabilities, axis=1, kind="stable").astype(np.int32)
    return np.take_along_axis(probabilities, order, axis=1), order


@pytest.mark.parametrize(("width", "active"), [(9000, 8990), (300, 300)])
def test_softmax_is_right_for_every_temperature(tmp_path: Path, width: int, active: int) -> None:
    logits = (np.random.default_rng(0).standard_normal((3, 1, width)) * 5).astype(np.float32)
    logits[1, 0, 5] = logits[1, 0, :active].max()  # two largest
    logits[:, :, active:] = 100  # padding of the table
    temperature = np.array([1, 0, 0.5], np.float32)
    partial: list[Array] = [np.zeros((3, softmax.chunks(width)), np.float32) for _ in range(2)]
    _, _, maxima, sums = run_cuda(softmax.describe_chunks(width), [logits, temperature, active, *partial], tmp_path)
    arrays: list[Array | int] = [logits, temperature, active, maxima, sums, np.full_like(logits, 7)]
    got = run_cuda(softmax.normalize(width), arrays, tmp_path)[-1][:, 0]
    expected = np.zeros((3, width))
    for row in range(3):
        below = (logits[row, 0, :active] - logits[row, 0, :active].max()).astype(np.float64)
        weights = np.exp(below / temperature[row]) if temperature[row] else (below >= 0).astype(np.float64)
        expected[row, :active] = weights / weights.sum()
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_a_number_between_0_and_1_chooses_the_token_by_the_sum_of_probabilities(tmp_path: Path) -> None:
    probabilities = _probabilities()
    tokens = np.full(5, -1, np.int32)
    got = run_cuda(sampling.sample_by_number(), [probabilities, NUMBERS, ROWS, tokens], tmp_path)[-1]
    sums = np.cumsum(probabilities.astype(np.float64), axis=1)
    assert got.tolist() == [int(np.argmax(sums[row] > number)) for row, number in zip(ROWS, NUMBERS, strict=True)]


def test_a_number_that_no_sum_exceeds_chooses_the_last_token_that_is_possible(tmp_path: Path) -> None:
    probabilities = np.zeros((1, 2500), np.float32)
    probabilities[0, [3, 1200]] = 0.25
    arrays = [probabilities, np.array([0.9], np.float32), np.zeros(1, np.int32), np.full(1, -1, np.int32)]
    assert run_cuda(sampling.sample_by_number(), arrays, tmp_path)[-1].tolist() == [1200]


def test_top_p_samples_from_the_fewest_tokens_that_are_enough(tmp_path: Path) -> None:
    values, order = _sorted(_probabilities())
    arrays = [values, order, NUMBERS, ROWS, TOP_P, np.full(5, -1, np.int32)]
    got = run_cuda(sampling.sample_top_p(), arrays, tmp_path)[-1]
    sums = np.cumsum(values.astype(np.float64), axis=1)
    expected = []
    for row, number in zip(ROWS, NUMBERS, strict=True):
        last = int(np.argmax(sums[row] >= TOP_P[row]))
        expected.append(int(order[row, np.argmax(sums[row] > number * sums[row, last])]))
    assert got.tolist() == expected


@pytest.mark.parametrize("first", [(0.3, 0.1, 0.01), (0.004, 0.003, 0.002), (0.9, 0.8, 0.7)], ids=str)
def test_renormalizing_by_top_p_keeps_the_fewest_tokens_that_are_enough(
    tmp_path: Path, first: tuple[float, float, float]
) -> None:
    probabilities = _probabilities()
    pivots = np.tile(np.array(first, np.float32), (3, 1))
    arrays = [probabilities, TOP_P, pivots, np.zeros(3, np.float32), np.zeros(3, np.float32)]
    *_, threshold, kept = run_cuda(sampling.find_top_p_pivot(), arrays, tmp_path)
    sums = np.cumsum(_sorted(probabilities)[0].astype(np.float64), axis=1)
    enough = np.argmax(sums >= TOP_P[:, None], axis=1)
    assert (probabilities >= threshold[:, None]).sum(axis=1).tolist() == (enough + 1).tolist()
    np.testing.assert_allclose(kept, sums[range(3), enough], rtol=1e-5)
    arrays = [probabilities, threshold, kept, np.full_like(probabilities, 7)]
    result = run_cuda(sampling.keep_from_pivot(), arrays, tmp_path)[-1]
    np.testing.assert_allclose(result.sum(axis=1), 1, rtol=1e-5)
    assert ((result > 0) == (probabilities >= threshold[:, None])).all()


def test_probabilities_are_taken_by_token_and_by_place_in_the_order(tmp_path: Path) -> None:
    probabilities = _probabilities()
    _, order = _sorted(probabilities)
    tokens, places = np.array([1, 2, 3, 4, 5], np.int32), np.array([0, WIDTH + 5, 2 * WIDTH + 100], np.int32)
    results = [np.zeros(5, np.float32), np.zeros(3, np.float32), np.zeros(3, np.int32)]
    arrays = [probabilities, order, ROWS, tokens, places, *results]
    *_, sampled, found, found_tokens = run_cuda(sampling.take_probabilities(), arrays, tmp_path)
    expected = [order[0, 0], order[1, 5], order[2, 100]]
    assert sampled.tolist() == probabilities[ROWS, tokens].tolist()
    assert found_tokens.tolist() == expected
    assert found.tolist() == probabilities[range(3), expected].tolist()


def _verify(drafts: Array, tokens: Array, model: Array, child: Array, sibling: Array, numbers: Array, node: int) -> int:
    """As `verify_drafts`, for one tree; changes `model`."""
    draft = int(child[node])
    while draft != -1:
        left = np.maximum(model[node] - drafts[draft], 0)
        accepted = model[node, tokens[draft]] >= numbers[draft] * drafts[draft, tokens[draft]] or left.sum() < 1e-7
        if accepted:
            node, draft = draft, int(child[draft])
        else:
            model[node] = left / left.sum()
            draft = int(sibling[draft])
    return node


@pytest.mark.parametrize("seed", range(3))
def test_drafts_are_accepted_and_refused_as_speculative_decoding_says(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    width = 1200
    # Two trees: 0 → (1 → (3), 2 → (4)), and 5 → (6 → (7)).
    child = np.array([1, 3, 4, -1, -1, 6, 7, -1], np.int32)
    sibling = np.array([-1, 2, -1, -1, -1, -1, -1, -1], np.int32)
    model, drafts = (random.dirichlet(np.full(width, 0.02), 8).astype(np.float32) for _ in range(2))
    drafts[6] = model[5]  # nothing is left of a distribution that was drafted exactly
    tokens = np.array([random.choice(width, p=row / row.sum()) for row in drafts.astype(np.float64)], np.int32)
    numbers = random.random(8).astype(np.float32)
    node = np.array([0, 5], np.int32)
    got = run_cuda(sampling.verify_drafts(), [drafts, tokens, model, child, sibling, numbers, node], tmp_path)
    expected_model = model.copy()
    nodes = [_verify(drafts, tokens, expected_model, child, sibling, numbers, root) for root in (0, 5)]
    assert got[6].tolist() == nodes
    np.testing.assert_allclose(got[2], expected_model, atol=1e-6)


def test_tokens_are_sorted_with_memory_of_the_callers(tmp_path: Path) -> None:
    """The sort is TVM's; its schedule and the buffers between its launches are ours."""
    with TARGET:
        module = relax.backend.DispatchSortScan()(attach_gpu_sampling(tvm.IRModule()))
        kernels = [f for v, f in module.functions_items() if "argsort" in v.name_hint and isinstance(f, tirx.PrimFunc)]
        (kernel,) = kernels
        scheduled, workspace = lift_global_buffers(apply_rules(kernel, TARGET, SCHEDULING.rules))
    assert len(scheduled.params) == len(kernel.params) + len(workspace) > len(kernel.params)
    probabilities = np.random.default_rng(0).permutation(3000).reshape(2, 1500).astype(np.float32)
    shape = probabilities.shape
    results = [np.zeros(shape, str(buffer.dtype)) for buffer in list(scheduled.params)[1:]]
    got = run_cuda(scheduled, [probabilities, *results], tmp_path)
    order = next(array for array in got[1 : len(kernel.params)] if array.dtype == np.int32)
    assert order.tolist() == _sorted(probabilities)[1].tolist()
