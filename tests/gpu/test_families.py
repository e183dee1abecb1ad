"""`python -m tests.gpu.families check` cannot succeed without having checked anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.gpu import families


@pytest.mark.parametrize(
    ("asked", "message"), [((), "has no library of any family"), (("mamba2", "bert"), "no library of bert, mamba2")]
)
def test_a_folder_without_what_is_to_be_checked_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["families", "check", str(tmp_path), *asked])
    with pytest.raises(SystemExit, match=message) as raised:
        families.main()
    assert raised.value.code not in (0, None)


@pytest.mark.parametrize(("error", "failed"), [(1e-5, False), (1e-3, True), (float("nan"), True)])
def test_an_error_above_the_bound_and_one_that_is_no_number_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: float, failed: bool
) -> None:
    (tmp_path / "llama.json").write_text("{}")
    monkeypatch.setattr(families, "check", lambda *_: {"bound": 1e-4, "prefill": error})
    monkeypatch.setattr(sys, "argv", ["families", "check", str(tmp_path)])
    with pytest.raises(SystemExit) as raised:
        families.main()
    assert raised.value.code == failed
