"""Files of this machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mlcbuild.errors import FetchError
from mlcbuild.execution.fetch import local
from mlcbuild.execution.fetch.observe import observe

PIN = hashlib.sha256(b"weights").hexdigest()


def test_a_path_from_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model.gguf").write_bytes(b"weights")
    local.run(file=tmp_path / "out", sha256=PIN, name="model.gguf", hints={"path": "~/model.gguf"})
    assert (tmp_path / "out").read_bytes() == b"weights"
    assert observe("local", {"path": "~/model.gguf"}) == PIN


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"other")
    with pytest.raises(FetchError, match="is not the pinned one"):
        local.run(file=tmp_path / "out", sha256=PIN, name="m", hints={"path": str(tmp_path / "model.gguf")})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("model.gguf", "not an absolute path"),
        ("/no/such/file", "No such file"),
        ("/", "not a file"),
        ("", "needs 'path'"),
    ],
)
def test_what_cannot_be_read_is_told(path: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=reason):
        local.run(file=tmp_path / "out", sha256=PIN, name="m", hints={"path": path})


def test_a_pin_must_be_a_digest(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="not 64 hexadecimal digits"):
        local.run(file=tmp_path / "out", sha256="abc", name="m", hints={"path": "/x"})


def test_an_unknown_kind_of_fetch_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind of fetch 'ftp'"):
        observe("ftp", {})
