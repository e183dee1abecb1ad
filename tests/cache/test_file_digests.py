"""Source files are hashed once, and again whenever they may have changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mlcbuild.cache import file_digests
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.errors import WorkspaceError

BLAKE3 = DigestFunction.BLAKE3


class CountingDigests(FileDigests):
    """Counts the files it really reads."""

    def __init__(self, root: Path, memory: Path | None = None) -> None:
        super().__init__(root, BLAKE3, memory)
        self.read: list[str] = []

    def _hash(self, path: str, location: str) -> file_digests.FileState:
        self.read.append(path)
        return super()._hash(path, location)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock stand ten seconds after every file is written."""
    monkeypatch.setattr(file_digests, "now_nanoseconds", lambda: time.time_ns() + 10_000_000_000)


def test_the_state_is_content_and_executable_bit(tmp_path: Path) -> None:
    (tmp_path / "é.txt").write_bytes(b"hello")
    (tmp_path / "empty").touch()
    (tmp_path / "run.sh").write_bytes(b"hello")
    (tmp_path / "run.sh").chmod(0o755)
    digests = FileDigests(tmp_path, BLAKE3)
    assert digests.of("é.txt") == file_digests.FileState(digest=BLAKE3.of_bytes(b"hello"), is_executable=False)
    assert digests.of("run.sh") == file_digests.FileState(digest=BLAKE3.of_bytes(b"hello"), is_executable=True)
    assert digests.of("empty").digest == BLAKE3.of_bytes(b"")


@pytest.mark.usefixtures("later")
def test_an_untouched_file_is_read_once_in_its_life(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    memory = tmp_path / ".mlcbuild" / "digests"
    first = CountingDigests(tmp_path, memory)
    assert first.of("a") == first.of("a")
    assert first.read == ["a"]
    first.save()
    second = CountingDigests(tmp_path, memory)
    assert second.of("a").digest == BLAKE3.of_bytes(b"hello")
    assert second.read == []


def test_a_file_touched_just_now_is_always_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    digests = CountingDigests(tmp_path)
    digests.of("a")
    digests.of("a")
    assert digests.read == ["a", "a"]


def test_a_file_from_the_future_is_always_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    future = time.time_ns() + 3_600_000_000_000
    os.utime(tmp_path / "a", ns=(future, future))
    digests = CountingDigests(tmp_path)
    digests.of("a")
    digests.of("a")
    assert digests.read == ["a", "a"]


@pytest.mark.usefixtures("later")
def test_edits_that_keep_size_and_modification_time_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    digests = FileDigests(tmp_path, BLAKE3)
    digests.of("a")
    status = path.stat()
    path.write_bytes(b"HELLO")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digests.of("a").digest == BLAKE3.of_bytes(b"HELLO")


@pytest.mark.usefixtures("later")
def test_a_file_replaced_by_an_older_one_is_seen(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    other.write_bytes(b"OLDER")
    path.write_bytes(b"hello")
    digests = FileDigests(tmp_path, BLAKE3)
    digests.of("a")
    other.replace(path)
    assert digests.of("a").digest == BLAKE3.of_bytes(b"OLDER")


@pytest.mark.usefixtures("later")
def test_a_changed_mode_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    digests = FileDigests(tmp_path, BLAKE3)
    assert not digests.of("a").is_executable
    (tmp_path / "a").chmod(0o755)
    assert digests.of("a").is_executable


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "other function", "text", "count"])
def test_a_damaged_memory_is_an_empty_one(tmp_path: Path, damage: str) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    memory = tmp_path / "digests"
    digests = FileDigests(tmp_path, BLAKE3, memory)
    digests.of("a")
    digests.save()
    data = memory.read_bytes()
    damaged = {
        "empty": b"",
        "cut": data[:-3],
        "flipped": data[:-40] + bytes([data[-40] ^ 1]) + data[-39:],
        "other function": data.replace(b"blake3", b"sha256"),
        "text": b"{}",
        "count": data.replace(b"\x01" + b"\0" * 7, b"\xff" * 8, 1),
    }[damage]
    assert damaged != data
    memory.write_bytes(damaged)
    again = CountingDigests(tmp_path, memory)
    assert again.of("a").digest == BLAKE3.of_bytes(b"hello")
    assert again.read == ["a"]


def test_a_memory_that_cannot_be_written_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    (tmp_path / "file").touch()
    digests = FileDigests(tmp_path, BLAKE3, tmp_path / "file" / "digests")
    digests.of("a")
    digests.save()


def test_a_file_that_changes_while_it_is_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"hello")

    class Meddler:
        def update(self, data: bytes) -> None:
            path.write_bytes(path.read_bytes() + data[:1])

        def hexdigest(self) -> str:
            return "0" * 64

    monkeypatch.setattr(DigestFunction, "hasher", lambda _: Meddler())
    with pytest.raises(WorkspaceError, match="changed while it was read"):
        FileDigests(tmp_path, BLAKE3).of("a")


def test_what_is_no_readable_file_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    digests = FileDigests(tmp_path, BLAKE3)
    with pytest.raises(WorkspaceError, match="'nothing' cannot be read: No such file"):
        digests.of("nothing")
    with pytest.raises(WorkspaceError, match="'folder'"):
        digests.of("folder")


@pytest.mark.slow
@pytest.mark.usefixtures("later")
def test_ten_thousand_known_files_take_a_fraction_of_a_second(tmp_path: Path) -> None:
    names = []
    for folder in range(100):
        (tmp_path / f"d{folder}").mkdir()
        for index in range(100):
            names.append(f"d{folder}/f{index}")
            (tmp_path / names[-1]).write_bytes(b"%d" % index)
    memory = tmp_path / "memory"
    cold = FileDigests(tmp_path, BLAKE3, memory)
    states = [cold.of(name) for name in names]
    cold.save()
    started = time.process_time()
    warm = FileDigests(tmp_path, BLAKE3, memory)
    assert [warm.of(name) for name in names] == states
    # The goal is 0.1 s on a quiet machine; what is asserted leaves room for a busy one.
    assert time.process_time() - started < 0.5


def test_a_link_that_leads_nowhere_is_told_with_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("no/such/file")
    with pytest.raises(WorkspaceError, match="it is a link to 'no/such/file', which does not exist"):
        FileDigests(tmp_path, DigestFunction.BLAKE3).of("link")
    with pytest.raises(WorkspaceError, match="No such file or directory"):
        FileDigests(tmp_path, DigestFunction.BLAKE3).of("absent")
