"""Families by schemes: in CI pairs that cover every family and every scheme, and all pairs exhaustively.

`pytest -v` names the pairs that it runs, and docs/scheme-grid.md shows those of CI in bold type."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiler import schemes
from tests.compiler.resolving import model_of
from tests.compiler.scheme_grid import MODELS, covering, measure, pairs, read_results
from tests.compiler.scheme_grid_page import PAGE, page

_IN_CI = covering()
_TIMES_THE_SEEN = 3.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "scheme"),
    [pytest.param(*pair, marks=() if pair in _IN_CI else pytest.mark.exhaustive) for pair in pairs()],
)
def test_a_quantized_library_is_within_the_bound_of_its_scheme(model: str, scheme: str, kernel_store: Path) -> None:
    found = measure(model, scheme, kernel_store=kernel_store)
    assert found.is_within, found
    seen = read_results().get((model, scheme))
    if seen is not None and seen.error and not seen.former:
        assert found.error <= _TIMES_THE_SEEN * seen.error, "much more than when the page was made"
    assert not found.cannot or "columns, which" in found.cannot  # rows that are no whole groups


def test_ci_runs_every_family_and_every_scheme() -> None:
    assert {model_of(MODELS[model].config).family for model, _ in _IN_CI} == {
        model_of(case.config).family for case in MODELS.values()
    }
    assert {scheme for _, scheme in _IN_CI} == set(schemes.NAMES)
    assert set(pairs()) >= _IN_CI
    assert len(_IN_CI) == len({model for model, _ in _IN_CI}), "no family runs twice"


def test_the_page_has_what_was_measured() -> None:
    assert PAGE.read_text() == page(read_results())


def test_results_are_those_of_pairs_that_there_are() -> None:
    assert read_results().keys() <= set(pairs())
