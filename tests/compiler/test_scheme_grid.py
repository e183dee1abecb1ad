"""Families by schemes: a subset in which each arithmetic and each kind of model is seen, and all pairs exhaustively."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiler import schemes
from tests.compiler.scheme_grid import measure, pairs, read_results
from tests.compiler.scheme_grid_page import PAGE, page

_IN_CI = {
    ("bert", "int8_int8_f16"),
    ("bert", "mxfp4_bf16"),
    ("bert", "q8_0_f16"),
    ("gemma", "q4f16_0"),
    ("gemma", "q6_k_f16"),
    ("gpt2", "q4f16_1"),
    ("gpt_bigcode-many", "q4bf16_1"),
    ("gpt_neox", "e5m2_e5m2_f16"),
    ("gpt_neox", "q5_k_f16"),
    ("gptj", "q3f16_1"),
    ("cohere", "q4f32_1"),
    ("llama", "fp8_e4m3fn_bf16_block_scale_static_activation"),
    ("llama", "q0f32"),
    ("llama", "q4_k_f16"),
    ("llama", "q8f32_1"),
    ("mamba2", "nvfp4_bf16"),
    ("mamba2", "q4f16_autoawq"),
    ("mamba2", "q4f16_ft"),
    ("olmo", "q8f16_1"),
    ("phi", "q0bf16"),
    ("phi", "q4f16_2"),
    ("phi3", "q4bf16_0"),
    ("phi3-longrope", "fp8_e4m3fn_bf16_channel_scale"),
    ("qwen3", "q0f16"),
    ("qwen3", "q3f16_0"),
    ("qwen3", "q8f16_ft"),
    ("stablelm", "fp8_e4m3fn_bf16_block_scale"),
    ("starcoder2", "e4m3_e4m3_f16"),
}
"""Each scheme once, with models of every other kind: mixtures and latent attention have tests of their own."""
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


def test_each_scheme_is_seen_in_ci() -> None:
    assert {scheme for _, scheme in _IN_CI} == set(schemes.NAMES)
    assert set(pairs()) >= _IN_CI


def test_the_page_has_what_was_measured() -> None:
    assert PAGE.read_text() == page(read_results())


def test_results_are_those_of_pairs_that_there_are() -> None:
    assert read_results().keys() <= set(pairs())
