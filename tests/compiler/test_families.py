"""Every family of decoders computes what transformers does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiler.families import largest_error
from tests.compiler.family_cases import CASES, WINDOWED
from tests.compiler.family_table import HEAD, row
from tests.compiler.gguf_cases import CASES as GGUF_CASES
from tests.compiler.gguf_table import gguf_head, gguf_row


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
