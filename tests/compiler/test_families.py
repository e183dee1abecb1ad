"""Families compute what transformers does: decoders' logits, and encoders' hidden states."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.rules.families import families
from tests.compiler.families import largest_error
from tests.compiler.family_cases import CASES
from tests.compiler.family_results import record
from tests.compiler.family_table import PAGE, table
from tests.compiler.windowed_cases import WINDOWED

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
    [
        pytest.param(name, marks=() if case.in_ci and name in CASES else pytest.mark.exhaustive)
        for name, case in (CASES | WINDOWED).items()
    ],
)
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path, kernel_store: Path) -> None:
    case = (CASES | WINDOWED)[name]
    record(name, case, largest_error(case, tmp_path, kernel_store=kernel_store))


def test_the_page_says_what_tests_recorded() -> None:
    assert _without_lines(PAGE.read_text()) == _without_lines(table()), "run python -m tests.compiler.family_table"


def _without_lines(page: str) -> list[list[str]]:
    """Cells of all lines but for how many lines families have."""
    return [cells[:8] if len(cells := line.split("|")) == 10 else cells for line in page.splitlines()]
