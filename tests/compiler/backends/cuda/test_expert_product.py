"""Experts' products on a GPU: the numbers of the scheduled kernel's own CUDA text, run on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm

from mlcbuild.compiler.backends.cuda.kernels.expert_product import schedule_expert_product
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


def test_other_types_and_architectures_are_left_to_other_rules() -> None:
    assert schedule_expert_product(product(4, 32, 64, 2, 1), TARGET) is None
    old = tvm.target.Target(CUDA_TARGET | {"arch": "sm_70"})
    assert schedule_expert_product(product(4, 32, 64, 2, 1, dtype="float16"), old) is None
