"""A release appears whole or not at all, and goes on where an interrupted one ended."""

from __future__ import annotations

import dataclasses
import stat
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.errors import LocalEnvironmentError, UsageError
from mlcbuild.release.folder_destination import FolderDestination
from mlcbuild.release.making import MadeRelease, make_release

from .world import contents, data_file, new_key


@pytest.fixture
def made() -> MadeRelease:
    return make_release(contents(), new_key("ecdsa"))


class Interrupted(Exception):  # noqa: N818
    """Stands for Ctrl-C."""


def write(folder: Path, made: MadeRelease, *, stop_after: int = 1 << 30) -> int:
    """Write until `stop_after` bytes."""
    done = 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        if done > stop_after:
            raise Interrupted

    return FolderDestination(folder).write(made.files, told=told)


def test_files_are_executable_as_they_were_built(tmp_path: Path, made: MadeRelease) -> None:
    write(tmp_path / "r", made)
    modes = [
        stat.S_IMODE((tmp_path / "r/models/m-cpu" / name).stat().st_mode) for name in ("lib.so", "params_shard_0.bin")
    ]
    assert modes == [0o755, 0o644]
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_an_interrupted_release_is_not_there_and_is_continued(tmp_path: Path, made: MadeRelease) -> None:
    with pytest.raises(Interrupted):
        write(tmp_path / "r", made, stop_after=10)
    assert not (tmp_path / "r").exists()
    assert write(tmp_path / "r", made) == 1  # The first file was whole.
    assert (tmp_path / "r/SHA256SUMS").is_file()


def test_what_an_interrupted_release_left_is_checked(tmp_path: Path, made: MadeRelease) -> None:
    with pytest.raises(Interrupted):
        write(tmp_path / "r", made, stop_after=10)
    partial = tmp_path / ".r.partial"
    for path in [path for path in partial.rglob("*") if path.is_file()]:
        path.write_text("x" * path.stat().st_size)
    (partial / "of another release").write_text("x")
    (partial / "folder").mkdir()
    assert write(tmp_path / "r", made) == 0
    assert FolderDestination(tmp_path / "r").holds(made.files, is_same_provenance=made.is_same_provenance)


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_nothing_is_written_through_links_in_a_partial_release(link: Any, tmp_path: Path, made: MadeRelease) -> None:
    partial, outside = tmp_path / ".r.partial", tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("of somebody else")
    (partial / "models").mkdir(parents=True)
    link(partial / "SHA256SUMS", outside / "file")
    (partial / "models/m-cpu").symlink_to(outside, target_is_directory=True)
    write(tmp_path / "r", made)
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("file", "of somebody else")]
    assert FolderDestination(tmp_path / "r").holds(made.files, is_same_provenance=made.is_same_provenance)


def test_a_link_in_the_place_of_the_partial_release_is_not_followed(tmp_path: Path, made: MadeRelease) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("of somebody else")
    (tmp_path / ".r.partial").symlink_to(tmp_path / "outside", target_is_directory=True)
    with pytest.raises(LocalEnvironmentError, match="cannot be written"):
        write(tmp_path / "r", made)
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["file"]


def test_the_same_release_is_there_already_whatever_its_signature(tmp_path: Path) -> None:
    key = new_key("ecdsa")
    first, second = make_release(contents(), key), make_release(contents(), key)
    assert first.files[-1] != second.files[-1]
    write(tmp_path / "r", first)
    assert FolderDestination(tmp_path / "r").holds(second.files, is_same_provenance=second.is_same_provenance)


def test_another_release_is_not_replaced(tmp_path: Path, made: MadeRelease) -> None:
    write(tmp_path / "r", made)
    other = make_release(contents(version="2.0"), new_key())
    with pytest.raises(UsageError, match="something else"):
        FolderDestination(tmp_path / "r").holds(other.files, is_same_provenance=other.is_same_provenance)


def test_an_empty_folder_is_filled(tmp_path: Path, made: MadeRelease) -> None:
    (tmp_path / "r").mkdir()
    assert not FolderDestination(tmp_path / "r").holds(made.files, is_same_provenance=made.is_same_provenance)
    write(tmp_path / "r", made)
    assert (tmp_path / "r/SHA256SUMS").is_file()


def test_a_file_that_is_not_what_its_digest_says_is_not_released(tmp_path: Path, made: MadeRelease) -> None:
    wrong = dataclasses.replace(data_file("a", "x"), sha256="0" * 64)
    with pytest.raises(LocalEnvironmentError, match="changed while"):
        FolderDestination(tmp_path / "r").write([wrong], told=lambda _count: None)
    assert not (tmp_path / "r").exists()


def test_a_file_is_no_place_for_a_release(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("x")
    with pytest.raises(UsageError, match="not a directory"):
        FolderDestination(tmp_path / "r")
