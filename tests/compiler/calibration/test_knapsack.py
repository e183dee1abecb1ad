"""The choice of one option for each item: within the budget, best, and with a bound that holds."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.compiler.calibration import knapsack
from mlcbuild.compiler.calibration.budget import parse_budget
from mlcbuild.compiler.calibration.knapsack import Option, choose, least_cost
from mlcbuild.errors import StageError

_OPTION = st.builds(Option, cost=st.integers(0, 10**9), error=st.floats(0, 1e3))
_ITEMS = st.lists(st.lists(_OPTION, min_size=1, max_size=4), min_size=1, max_size=5)


@settings(max_examples=150, deadline=None)
@given(items=_ITEMS, spare=st.integers(0, 10**9))
def test_no_choice_exceeds_the_budget_and_none_is_below_its_bound(items: list[list[Option]], spare: int) -> None:
    budget = least_cost(items) + spare
    found = choose(items, budget)
    picked = [item[place] for item, place in zip(items, found.options, strict=True)]
    assert found.cost == sum(option.cost for option in picked) <= budget
    assert found.error == math.fsum(option.error for option in picked)
    best = min(
        math.fsum(option.error for option in each)
        for each in itertools.product(*items)
        if sum(option.cost for option in each) <= budget
    )
    assert found.lower_bound <= best + 1e-6 * (1 + best)
    assert found == choose(items, budget)


@settings(max_examples=150, deadline=None)
@given(
    items=st.lists(
        st.lists(st.builds(Option, cost=st.integers(0, 40), error=st.floats(0, 10)), min_size=1, max_size=4),
        min_size=1,
        max_size=5,
    ),
    spare=st.integers(0, 200),
)
def test_costs_that_are_not_rounded_give_the_best_choice(items: list[list[Option]], spare: int) -> None:
    budget = least_cost(items) + spare
    best = min(
        math.fsum(option.error for option in each)
        for each in itertools.product(*items)
        if sum(option.cost for option in each) <= budget
    )
    assert choose(items, budget).error == pytest.approx(best, abs=1e-9)


def test_rounded_costs_keep_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knapsack, "MOST_UNITS", 10)
    items = [[Option(cost=7 * n + 1, error=1.0), Option(cost=97 * n + 3, error=1 / n)] for n in range(1, 9)]
    for budget in range(least_cost(items), 4000, 131):
        found = choose(items, budget)
        assert found.cost <= budget
        assert found.lower_bound <= found.error


def test_of_equal_errors_the_smaller_cost_is_chosen() -> None:
    items = [[Option(cost=9, error=1.0), Option(cost=4, error=1.0)]]
    assert choose(items, 20).options == (1,)


def test_a_budget_below_the_least_cost_is_an_error() -> None:
    with pytest.raises(ValueError, match="a budget of 3 is below 4"):
        choose([[Option(cost=4, error=0.0)]], 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4.5 bits", 562), ("4bits", 500), ("100 B", 100), ("1.5kB", None), ("2KB", 2000), ("2KiB", 2048), ("q4f16_1", 7)],
)
def test_a_budget_is_bits_or_bytes_or_a_scheme(text: str, expected: int | None) -> None:
    if expected is None:
        with pytest.raises(StageError, match="is no budget"):
            parse_budget(text, ("q4f16_1",))
    else:
        assert parse_budget(text, ("q4f16_1",)).of(1000, {"q4f16_1": 7}) == expected


@pytest.mark.parametrize("text", ["", "4.5", "q8f16_1", "0 bits", "0 MB", "-3 bits", "4.5 bits a weight"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(StageError, match=r"no budget|room for nothing"):
        parse_budget(text, ("q4f16_1",))
