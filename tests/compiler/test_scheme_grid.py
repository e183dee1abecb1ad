"""Families by schemes: a subset in which each arithmetic and each kind of model is seen, and all pairs exhaustively."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.compiler import schemes
from tests.compiler.scheme_grid import measure, pairs, read_results
from tests.compiler.scheme_grid_page import PAGE, page

_IN_CI = {
    ("bert", "int8_int8_f16"),
    ("bert", "mxfp4_bf16"),
    ("gemma", "q6_k_f16"),
    ("gptj", "q3f16_1"),
    ("mamba2", "q4f16_autoawq"),
    ("mamba2", "q4f16_ft"),
    ("qwen3", "q0f16"),
    ("starcoder2", "e4m3_e4m3_f16"),
}
"""Each arithmetic once; mixtures and latent attention have tests of their own."""
_TIMES_THE_SEEN = 3.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "scheme"),
    [pytest.param(*pair, marks=() if pair in _IN_CI else pytest.mark.exhaustive) for pair in pairs()],
)
def test_a_quantized_library_is_within_the_bound_of_its_scheme(model: str, scheme: str, kernel_store: Path) -> None:
    found = measure(model, scheme, kernel_store=kernel_store)
    assert found.error <= found.bound
    seen = read_results().get((model, scheme))
    if seen is not None and seen.error:
        assert found.error <= _TIMES_THE_SEEN * seen.error, "much more than when the page was made"
    assert not found.cannot or "columns, which" in found.cannot  # rows that are no whole groups


def test_each_arithmetic_is_seen_in_ci() -> None:
    def arithmetics(names: Iterable[str]) -> set[type]:
        return {type(schemes.scheme(name)) for name in names}

    assert arithmetics(scheme for _, scheme in _IN_CI) == arithmetics(schemes.NAMES)
    assert set(pairs()) >= _IN_CI


def test_the_page_has_what_was_measured() -> None:
    assert PAGE.read_text() == page(read_results())


def test_results_are_those_of_pairs_that_there_are() -> None:
    assert read_results().keys() <= set(pairs())
