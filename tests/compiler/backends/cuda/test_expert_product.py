"""Experts' products on a GPU: the numbers of the scheduled kernel's own CUDA text, run on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from mlcbuild.compiler.backends.cuda.kernels.expert_product import schedule_expert_product
from mlcbuild.compiler.backends.cuda.schedule import SCHEDULING
from mlcbuild.compiler.kernels.scheduling import apply_rules
from mlcbuild.compiler.models.layers import routing
from mlcbuild.compiler.models.layers.experts import sum_of_choices
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import CUDA_TARGET, run_cuda
from tests.compiler.expert_products import arrays, product, random_choices, sorted_choices
from tests.compiler.kernel_running import Array

TARGET = tvm.target.Target(CUDA_TARGET)
needs_gxx = pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")


def _choices(name: str, experts: int, choices: int) -> Array:
    if name == "one token":
        return random_choices(experts, 1, choices)
    if name == "all to one expert":
        return np.full((11, choices), 1)
    return random_choices(experts, 11, choices)


@needs_gxx
@pytest.mark.parametrize(
    ("name", "packed", "n", "k"),
    [
        ("several tokens", True, 40, 192),
        ("all to one expert", False, 32, 96),
        *(
            pytest.param(name, *shape, marks=pytest.mark.exhaustive)
            for name, shape in [
                ("one token", (True, 40, 192)),
                ("one token", (False, 32, 96)),
                ("several tokens", (False, 32, 96)),
                ("all to one expert", (True, 40, 192)),
            ]
        ),
    ],
)
def test_rows_times_the_matrices_of_their_experts(tmp_path: Path, name: str, packed: bool, n: int, k: int) -> None:
    experts, choices = 4, 2
    func = product(experts, n, k, choices, None, dtype="float16", packed=packed, numbers=True)
    kernel = schedule_expert_product(func, TARGET)
    assert kernel is not None
    chosen, numbers = sorted_choices(_choices(name, experts, choices))
    given, expected = arrays(chosen, experts, n, k, dtype="float16", packed=packed, numbers=numbers, rows=False)
    found = run_cuda(kernel, given, tmp_path)[-1]
    # A weight is rounded to float16 as it is restored, and so is the result.
    np.testing.assert_allclose(found, expected, atol=3e-2, rtol=2e-3)


@needs_gxx
@pytest.mark.parametrize("rows", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_one_token_needs_no_order(tmp_path: Path, rows: bool) -> None:
    kernel = schedule_expert_product(product(6, 48, 128, 3, 1, dtype="float16", rows=rows), TARGET)
    assert kernel is not None
    given, expected = arrays(random_choices(6, 1, 3), 6, 48, 128, dtype="float16", packed=True, numbers=None, rows=rows)
    np.testing.assert_allclose(run_cuda(kernel, given, tmp_path)[-1], expected, atol=3e-2, rtol=2e-3)


@needs_gxx
def test_experts_are_chosen_and_rows_ordered_and_added_up(tmp_path: Path) -> None:
    """Kernels around the products, as TVM's rules spread them over threads."""
    tokens, experts, choices, size = 5, 6, 2, 8
    count = tirx.Var("tokens", "int64")
    random = np.random.default_rng(2)
    logits = random.integers(-2, 3, (tokens, experts)).astype(np.float32)  # with ties

    def placeholder(columns: tuple[int, ...], dtype: str) -> te.Tensor:
        return te.placeholder((count, *(tirx.IntImm("int64", column) for column in columns)), dtype, name="given")

    def made(name: str, func: tirx.PrimFunc, *arrays: Array) -> Array:
        directory = tmp_path / name
        directory.mkdir()
        return run_cuda(apply_rules(func, TARGET, SCHEDULING.rules), arrays, directory)[-1]

    scores = placeholder((experts,), "float32")
    ranks = made(
        "ranks", te.create_prim_func([scores, routing.rank_experts(scores)]), logits, np.zeros_like(logits, np.int32)
    )
    known = placeholder((experts,), "int32")
    empty = np.zeros((tokens, choices), np.int32)
    chosen = made("chosen", te.create_prim_func([known, routing.experts_of_ranks(known, choices)]), ranks, empty)
    np.testing.assert_array_equal(chosen, np.argsort(-logits, axis=1, kind="stable")[:, :choices])
    given = placeholder((choices,), "int32")
    places = made("places", te.create_prim_func([given, routing.places_by_expert(given)]), chosen, empty)
    order = tmp_path / "order"
    order.mkdir()
    scheduled = apply_rules(routing.order_by_expert(choices), TARGET, SCHEDULING.rules)
    *_, in_order, numbers = run_cuda(scheduled, [chosen, places, empty, empty], order)
    expected_experts, expected_numbers = sorted_choices(chosen)
    np.testing.assert_array_equal(in_order, expected_experts)
    np.testing.assert_array_equal(numbers, expected_numbers)
    rows, weights = placeholder((choices, size), "float32"), placeholder((choices,), "float32")
    total = te.create_prim_func([rows, weights, given, sum_of_choices(rows, weights, given, dtype="float32")])
    values = random.standard_normal((tokens, choices, size)).astype(np.float32)
    factors = random.random((tokens, choices)).astype(np.float32)
    found = made("total", total, values, factors, places, np.zeros((tokens, size), np.float32))
    by_choice = values.reshape(-1, size)[places.reshape(-1)].reshape(tokens, choices, size)
    np.testing.assert_allclose(found, (by_choice * factors[..., None]).sum(axis=1), rtol=1e-5, atol=1e-6)


def test_other_types_and_architectures_are_left_to_other_rules() -> None:
    assert schedule_expert_product(product(4, 32, 64, 2, 1), TARGET) is None
    old = tvm.target.Target(CUDA_TARGET | {"arch": "sm_70"})
    assert schedule_expert_product(product(4, 32, 64, 2, 1, dtype="float16"), old) is None
