"""Checks of the disk cache: abilities of its file system, speed, contents."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import NoReturn

import pytest

from mlcbuild.cache import file_systems
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.doctor import disk_cache
from mlcbuild.doctor.finding import Verdict
from mlcbuild.errors import CacheError
from tests.cache.stores import blob_file

BLAKE3 = DigestFunction.BLAKE3


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def refusing(code: int) -> object:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return refuse


@pytest.mark.parametrize(
    ("kind", "verdict"), [("ext4", Verdict.OK), ("nfs4", Verdict.WARNING), ("tmpfs", Verdict.WARNING)]
)
def test_the_kind_of_file_system(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, verdict: Verdict
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"x / {kind} rw 0 0\n")
    monkeypatch.setattr(file_systems, "MOUNTS", mounts)
    finding = disk_cache.place(root)
    assert (finding.verdict, finding.figures["file_system"]) == (verdict, kind)


def test_a_file_in_the_place_of_the_cache(root: Path) -> None:
    root.write_text("x")
    assert disk_cache.place(root).verdict is Verdict.ERROR


def test_a_file_system_without_attributes_and_links(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "setxattr", refusing(errno.ENOTSUP))
    monkeypatch.setattr(os, "link", refusing(errno.EPERM))
    finding = disk_cache.abilities(root)
    assert finding.verdict is Verdict.OK
    assert finding.measured.startswith("no ")
    assert finding.figures["extended_attributes"] is finding.figures["hard_links"] is False


def test_a_file_system_that_spoils_attributes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "setxattr", lambda *_: None)
    monkeypatch.setattr(os, "getxattr", lambda *_: b"something else..")
    assert disk_cache.abilities(root).verdict is Verdict.ERROR


def test_a_file_system_without_locks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOLCK))
    finding = disk_cache.abilities(root)
    assert finding.verdict is Verdict.WARNING
    assert finding.measured.startswith("no locks; ")


def test_a_server_that_dates_files_by_another_clock(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 100)
    finding = disk_cache.clock(root)
    assert finding.verdict is Verdict.WARNING
    assert "dates of files are +100." in finding.measured or "dates of files are +99." in finding.measured


def test_a_disk_that_gives_back_other_bytes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskStore, "read", lambda *_: b"others")
    finding = disk_cache.throughput(root, BLAKE3, size=1 << 16)
    assert finding.verdict is Verdict.ERROR
    assert finding.measured == "a blob reads back with other bytes"


def test_a_disk_that_damages_what_lies_on_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store itself finds it."""
    path_of = DiskStore.path_of

    def spoil(self: DiskStore, digest: object) -> Path:
        path = path_of(self, digest)  # type: ignore[arg-type]
        path.chmod(0o600)
        with path.open("r+b") as stream:
            stream.write(b"\0\0\0\0")
        return path

    monkeypatch.setattr(DiskStore, "path_of", spoil)
    with pytest.raises(CacheError):
        disk_cache.throughput(root, BLAKE3, size=1 << 16)
    assert not root.exists()


def test_quarantined_files_are_warned_of(root: Path) -> None:
    store = DiskStore(root, BLAKE3)
    assert disk_cache.contents(root).measured.startswith("digests by blake3; no damage")
    digest = store.put_bytes(b"some bytes")
    path = blob_file(store, digest)
    path.chmod(0o600)
    path.write_bytes(b"some bytez")
    store.quarantine(digest.hash)
    finding = disk_cache.contents(root)
    assert finding.verdict is Verdict.WARNING
    assert finding.figures["damaged"] == 1


def test_the_real_store_is_not_touched(root: Path) -> None:
    store = DiskStore(root, BLAKE3)
    store.put_bytes(b"some bytes")
    before = {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))}
    for check in disk_cache.disk_checks(root, BLAKE3):
        check.examine()
    assert {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))} == before


def test_what_a_killed_doctor_left_is_removed_after_a_day(root: Path) -> None:
    old, new = root / "doctor/old", root / "doctor/new"
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (1_000_000_000, 1_000_000_000))
    disk_cache.abilities(root)
    assert sorted(path.name for path in (root / "doctor").iterdir()) == ["new"]
