"""A whole wheel: pip finds the one with the pin, in a folder that the user's configuration names."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mlcbuild.errors import FetchError
from mlcbuild.execution.fetch import wheel
from tests.small_wheels import pip_settings, write_wheel

HINTS = {"package": "tiny", "version": "1.2"}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path, _ = write_wheel(tmp_path / "wheels", "tiny", "1.2", {"tiny.py": "x = 1\n"})
    for name, value in pip_settings(path.parent).items():
        monkeypatch.setenv(name, value)
    return path


def pin_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_wheel_is_kept_under_its_name_and_nothing_else(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    wheel.run(file=out / "tiny-1.2.whl", sha256=pin_of(made), name="tiny-1.2.whl", hints=dict(HINTS))
    assert (out / "tiny-1.2.whl").read_bytes() == made.read_bytes()
    assert [path.name for path in out.iterdir()] == ["tiny-1.2.whl"]


def test_of_several_wheels_of_a_version_the_one_with_the_pin_is_taken(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip would prefer the higher build number. An index says the digest of each file, and pip reads that first."""
    first, _ = write_wheel(tmp_path / "other", "tiny", "1.2", {"tiny.py": "x = 2\n"})
    other = first.rename(made.with_name("tiny-1.2-2-py3-none-any.whl"))
    links = [f'<a href="{path.as_uri()}#sha256={pin_of(path)}">{path.name}</a>' for path in (other, made)]
    page = tmp_path / "index.html"
    page.write_text("\n".join(links))
    monkeypatch.setenv("PIP_FIND_LINKS", page.as_uri())
    for path in (made, other):
        out = tmp_path / "t.whl"
        wheel.run(file=out, sha256=pin_of(path), name="t.whl", hints=dict(HINTS))
        assert out.read_bytes() == path.read_bytes()


def test_a_wheel_with_another_digest_is_told_plainly(made: Path, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"tiny==1\.2: no wheel of it has the pinned SHA-256"):
        wheel.run(file=tmp_path / "t.whl", sha256="0" * 64, name="t.whl", hints=dict(HINTS))
    assert not (tmp_path / "t.whl").exists()


def test_a_version_that_is_not_there_is_told_in_pips_words(made: Path, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="No matching distribution"):
        wheel.run(file=tmp_path / "t.whl", sha256="0" * 64, name="t.whl", hints={**HINTS, "version": "9"})
