"""Families by schemes: a subset in which each arithmetic and each kind of model is seen, and all pairs exhaustively."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiler.scheme_grid import measure, pairs, read_results
from tests.compiler.scheme_grid_page import PAGE, page

_IN_CI = {("bert", "int8_int8_f16")}
"""Pairs whose parts no other test of CI puts together: bytes in an encoder."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "scheme"),
    [pytest.param(*pair, marks=() if pair in _IN_CI else pytest.mark.exhaustive) for pair in pairs()],
)
def test_a_quantized_library_is_within_the_bound_of_its_scheme(model: str, scheme: str, kernel_store: Path) -> None:
    found = measure(model, scheme, kernel_store=kernel_store)
    assert found.error <= found.bound
    assert not found.cannot or "columns, which" in found.cannot  # rows that are no whole groups


def test_the_page_has_what_was_measured() -> None:
    assert PAGE.read_text() == page(read_results())


def test_results_are_those_of_pairs_that_there_are() -> None:
    assert read_results().keys() <= set(pairs())
