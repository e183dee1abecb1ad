"""Families compute what transformers does: decoders' logits, and encoders' hidden states."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.rules.families import families
from tests.compiler.families import largest_error
from tests.compiler.family_cases import CASES, WINDOWED
from tests.compiler.family_table import HEAD, row
from tests.compiler.gguf_cases import CASES as GGUF_CASES
from tests.compiler.gguf_table import gguf_head, gguf_row

ELSEWHERE = {
    "deepseek": "test_mixtures.py has its reference, a Qwen2-MoE with changed weights",
    "gemma3": "the text part of a gemma3_text, whose row it is",
    "mistral": "test_window_parity.py compares it past its window, in more ways",
    "mistral3": "the text part of a ministral3, whose row it is",
    "qwen3_5_moe": "the text part of a qwen3_5_moe_text, whose row it is",
}
"""Why a model type has no row of its own."""


def test_every_model_type_has_a_case_or_a_reason() -> None:
    compared = {case.config["model_type"] for case in (CASES | WINDOWED).values()}
    known = {model_type for family in families() for model_type in family.model_types}
    assert known - compared == set(ELSEWHERE)
    folders = (Path(__file__).parents[2] / "mlcbuild" / "compiler" / "families").glob("*/family.py")
    assert {path.parent.name for path in folders} == {family.name for family in families()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if case.in_ci else pytest.mark.exhaustive) for name, case in CASES.items()],
)
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path, kernel_store: Path) -> None:
    largest_error(CASES[name], tmp_path, kernel_store=kernel_store)


def test_the_page_has_a_row_for_each_model() -> None:
    page = (Path(__file__).parents[2] / "docs" / "families.md").read_text()
    assert page.startswith(HEAD)
    models, head, files = page.partition(gguf_head())
    assert head, "the page does not say what is compared of GGUF files"
    expected = [row(name, case, 0.0) for name, case in (CASES | WINDOWED).items()]
    assert _without_errors(models.removeprefix(HEAD).splitlines()) == _without_errors(expected)
    expected = [gguf_row(name, case, 0.0) for name, case in GGUF_CASES.items()]
    assert _without_errors(files.splitlines()) == _without_errors(expected)


def _without_errors(rows: list[str]) -> list[list[str]]:
    """Cells of rows but for the errors, which differ from one processor to the next."""
    return [line.split("|")[1:5] for line in rows]
