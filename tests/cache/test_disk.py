"""The disk store serves what was stored or says that it is missing."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from unittest import mock

import pytest

from mlcbuild.cache import integrity, reapi
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore, default_root
from mlcbuild.cache.store import BlobMissingError
from mlcbuild.errors import CacheError
from tests.cache.disk_files import BLAKE3, KEY, blob_path, files_in, result_of

# What is stored


@pytest.mark.parametrize("function", list(DigestFunction))
def test_bytes_come_back(tmp_path: Path, function: DigestFunction) -> None:
    store = DiskStore(tmp_path, function)
    for data in (b"", b"a", b"\0" * 5000):
        digest = store.put_bytes(data)
        assert digest == function.of_bytes(data)
        assert store.read(digest) == data
        assert store.path_of(digest).read_bytes() == data
        with store.open(digest) as stream:
            assert stream.read() == data
        assert store.missing([digest]) == ()


def test_blobs_lie_by_function_and_hash_and_are_read_only(store: DiskStore) -> None:
    digest = store.put_bytes(b"hello")
    path = store.path_of(digest)
    assert path == blob_path(store, digest)
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


def test_the_empty_blob_is_always_there(store: DiskStore) -> None:
    empty = BLAKE3.of_bytes(b"")
    assert store.missing([empty]) == ()
    blob_path(store, empty).unlink()
    assert store.missing([empty]) == ()
    assert store.read(empty) == b""
    assert store.path_of(empty).read_bytes() == b""


def test_missing_blobs_are_named_once_and_in_order(store: DiskStore) -> None:
    one, two, three = (BLAKE3.of_bytes(data) for data in (b"1", b"2", b"3"))
    store.put_bytes(b"2")
    assert store.missing([three, one, two, three]) == (three, one)
    with pytest.raises(BlobMissingError) as caught:
        store.read(one)
    assert caught.value.digest == one


def test_a_digest_of_the_wrong_size_is_not_there_and_harms_nothing(store: DiskStore) -> None:
    digest = store.put_bytes(b"hello")
    wrong = Digest(digest.hash, 4)
    assert store.missing([wrong]) == (wrong,)
    for fetch in (store.read, store.path_of, store.open):
        with pytest.raises(BlobMissingError):
            fetch(wrong)
    assert store.read(digest) == b"hello"


def test_a_file_is_copied_or_moved_in(store: DiskStore, tmp_path: Path) -> None:
    file = tmp_path / "é 漢.bin"
    file.write_bytes(b"x" * 3_000_000)
    file.chmod(0o755)
    digest = store.put_file(file)
    assert digest == BLAKE3.of_bytes(b"x" * 3_000_000)
    assert stat.S_IMODE(file.stat().st_mode) == 0o755
    assert stat.S_IMODE(store.path_of(digest).stat().st_mode) == 0o444
    assert store.put_file(file, move=True) == digest
    assert not file.exists()
    assert store.read(digest) == b"x" * 3_000_000
    assert files_in(store, "tmp") == []


def test_a_moved_file_keeps_its_inode(store: DiskStore, tmp_path: Path) -> None:
    file = tmp_path / "output"
    file.write_bytes(b"big")
    inode = file.stat().st_ino
    assert store.path_of(store.put_file(file, move=True)).stat().st_ino == inode
    assert not file.exists()


def test_a_file_that_was_stored_a_moment_ago_is_not_read_again_until_it_changes(
    store: DiskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "output"
    file.write_bytes(b"content")
    digest = store.put_file(file, move=True)
    check = mock.Mock(wraps=integrity.checksum_of_file)
    monkeypatch.setattr(integrity, "checksum_of_file", check)
    path = store.path_of(digest)
    assert store.read(digest) == b"content"
    assert not check.called
    path.chmod(0o644)
    path.write_bytes(b"CONTENT")
    with pytest.raises(BlobMissingError):
        store.path_of(digest)
    assert check.called


def test_moving_one_of_two_names_of_a_file_leaves_the_other_writable_and_apart(
    store: DiskStore, tmp_path: Path
) -> None:
    file, other = tmp_path / "output", tmp_path / "other"
    file.write_bytes(b"content")
    other.hardlink_to(file)
    digest = store.put_file(file, move=True)
    other.write_bytes(b"CHANGED")
    assert not file.exists()
    assert store.read(digest) == b"content"


def test_only_regular_files_are_taken(store: DiskStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ValueError, match="not a regular file"):
            store.put_file(path)
    with pytest.raises(FileNotFoundError):
        store.put_file(tmp_path / "nothing")
    assert files_in(store, "tmp") == []


def test_copies_without_help_of_the_kernel_are_whole(
    store: DiskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EXDEV, "not here")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    file = tmp_path / "big"
    file.write_bytes(os.urandom(2_500_000))
    assert store.read(store.put_file(file)) == file.read_bytes()


def test_the_cache_folder_follows_the_xdg_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_root() == Path("/somewhere/mlcbuild")
    monkeypatch.setenv("HOME", "/home/ada")
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert default_root() == Path("/home/ada/.cache/mlcbuild")


# Results


def test_results_come_back_and_are_replaced(store: DiskStore) -> None:
    assert store.get(KEY) is None
    digest = store.put_bytes(b"out")
    for worker in ("one", "two"):
        store.put(KEY, result_of(digest, worker))
        assert store.get(KEY) == result_of(digest, worker)
    assert files_in(store, "tmp") == []


def test_failures_are_not_kept(store: DiskStore) -> None:
    with pytest.raises(ValueError, match="exit code 1"):
        store.put(KEY, reapi.ActionResult(exit_code=1))
    assert store.get(KEY) is None


def test_a_store_that_cannot_be_made_says_where_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CacheError, match="there must be a folder") as caught:
        DiskStore(tmp_path / "file", BLAKE3)
    assert str(tmp_path / "file") in str(caught.value)
    with pytest.raises(CacheError, match="XDG_CACHE_HOME"):
        DiskStore(Path("/proc/here"), BLAKE3)


def test_a_blob_removed_by_somebody_else_is_missing_and_can_be_stored_again(store: DiskStore) -> None:
    digest = store.put_bytes(b"hello")
    store.read(digest)
    blob_path(store, digest).unlink()
    with pytest.raises(BlobMissingError):
        store.read(digest)
    store.put_bytes(b"hello")
    assert store.read(digest) == b"hello"


@pytest.mark.parametrize("name", ["v1", "v1/blake3", "v1/blake3/cas", "v1/blake3/tmp"])
def test_a_file_in_the_place_of_the_stores_own_folders_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    place = tmp_path / "store" / name
    place.parent.mkdir(parents=True)
    place.write_text("a file")
    with pytest.raises(CacheError) as raised:
        DiskStore(tmp_path / "store", BLAKE3)
    assert str(place) in " ".join(raised.value.advice)
    assert place.read_text() == "a file"
