"""Every family of decoders computes what transformers does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiler.families import largest_error
from tests.compiler.family_cases import CASES, WINDOWED
from tests.compiler.family_table import HEAD, row


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
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`" in line]
    expected = [row(name, case, 0.0) for name, case in (CASES | WINDOWED).items()]
    # All but the error, which differs from one processor to the next.
    assert [line.split("|")[1:5] for line in rows[1:]] == [line.split("|")[1:5] for line in expected]
