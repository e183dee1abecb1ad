"""The schedule of experts' products on a CPU: right for every number and order of rows, and absent where it does not
fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from mlcbuild.compiler.backends.cpu.kernels.expert_product import schedule_expert_product
from mlcbuild.compiler.kernels.expert_product import match_expert_product
from tests.compiler.expert_products import arrays, product, random_choices, sorted_choices
from tests.compiler.kernel_running import TARGET, Array, compiled, packed_product, run, scheduled

_ROUNDING = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}


def _check(kernel: Any, chosen: Array, experts: int, n: int, k: int, **options: Any) -> None:
    given, expected = arrays(chosen, experts, n, k, **options)
    found = run(kernel, given)[-1].astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=0, atol=_ROUNDING[options["dtype"]] * np.abs(expected).max() * 2)


_SHAPES = [(True, 24, 256), (True, 6, 96), (False, 12, 72)]
_OFTEN = [("float32", True, 24), ("float16", True, 6), ("bfloat16", False, 12)]


@pytest.mark.parametrize(
    ("dtype", "packed", "n", "k"),
    [
        pytest.param(dtype, *shape, marks=[] if (dtype, *shape[:2]) in _OFTEN else pytest.mark.exhaustive)
        for dtype in ("float32", "float16", "bfloat16")
        for shape in _SHAPES
    ],
)
def test_rows_times_the_matrices_of_their_experts(dtype: str, packed: bool, n: int, k: int) -> None:
    experts, choices = 5, 2
    func = product(experts, n, k, choices, None, dtype=dtype, packed=packed, numbers=True)
    kernel = compiled(scheduled(schedule_expert_product, func))
    for tokens in (1, 3, 17):
        chosen, numbers = sorted_choices(random_choices(experts, tokens, choices))
        _check(kernel, chosen, experts, n, k, dtype=dtype, packed=packed, numbers=numbers, rows=False)
    everybody = np.full((9, choices), 3)  # all rows of one expert
    numbers = np.arange(18).reshape(9, choices)
    _check(kernel, everybody, experts, n, k, dtype=dtype, packed=packed, numbers=numbers, rows=False)


@pytest.mark.parametrize(
    ("packed", "tokens", "choices"),
    [
        (True, 1, 4),
        (False, None, 3),
        *(
            pytest.param(packed, tokens, choices, marks=pytest.mark.exhaustive)
            for packed in (True, False)
            for tokens, choices in ((1, 1), (None, 1))
        ),
        pytest.param(False, 1, 4, marks=pytest.mark.exhaustive),
        pytest.param(True, None, 3, marks=pytest.mark.exhaustive),
    ],
)
def test_rows_in_any_order(packed: bool, tokens: int | None, choices: int) -> None:
    """One token's choices are not sorted, and the second product reads rows that the first one made."""
    for rows in (False, True):
        func = product(6, 16, 128, choices, tokens, packed=packed, rows=rows)
        kernel = compiled(scheduled(schedule_expert_product, func))
        for count in [tokens] if tokens else [1, 7]:
            chosen = random_choices(6, count, choices)
            _check(kernel, chosen, 6, 16, 128, dtype="float32", packed=packed, numbers=None, rows=rows)


def test_the_pattern_is_read_off() -> None:
    found = match_expert_product(product(5, 24, 96, 2, None, numbers=True))
    assert found is not None
    assert (found.choices, found.n, found.k, found.x_has_rows) == (2, 24, 96, False)
    assert found.numbers is not None
    alone = match_expert_product(product(5, 24, 96, 2, 1, packed=False))
    assert alone is not None
    assert (alone.tokens, alone.numbers) == (1, None)


def test_other_kernels_are_left_to_other_rules() -> None:
    x = te.placeholder((4, 8), "float32", name="x")
    twice = te.create_prim_func([x, te.compute((4, 8), lambda i, j: x[i, j] * 2, name="twice")])
    odd = product(3, 8, 36, 2, 1, packed=False)  # no whole vectors
    for func in (twice, packed_product(8, 64, 1), odd):
        assert schedule_expert_product(func, TARGET) is None
    assert isinstance(scheduled(schedule_expert_product, product(3, 8, 40, 2, 1, packed=False)), tirx.PrimFunc)
