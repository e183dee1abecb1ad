"""A disk store whose files are damaged, torn or replaced by something else serves none of it, and mends itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mlcbuild.cache import integrity
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.store import BlobMissingError
from tests.cache.disk_files import BLAKE3, KEY, blob_path, damage, files_in, put_elsewise, result_of


@pytest.mark.parametrize(
    "damaged", [b"", b"hell", b"hellp", b"hello!", b"\0\0\0\0\0"], ids=["empty", "cut", "flipped", "longer", "zeros"]
)
@pytest.mark.parametrize("attributes", [True, False], ids=["attribute", "index"])
def test_damaged_blobs_are_never_served(
    tmp_path: Path, damaged: bytes, attributes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not attributes:
        monkeypatch.setattr(integrity, "write_attribute", lambda *_: False)
    digest = DiskStore(tmp_path, BLAKE3).put_bytes(b"hello")
    store = DiskStore(tmp_path, BLAKE3)
    assert (files_in(store, "checksums") != []) == (not attributes)
    damage(blob_path(store, digest), damaged)
    with pytest.raises(BlobMissingError, match="damaged"):
        store.path_of(digest)
    assert store.missing([digest]) == (digest,)
    assert files_in(store, "corrupt") == [digest.hash]
    assert store.put_bytes(b"hello") == digest
    assert store.read(digest) == b"hello"


def test_damage_after_the_first_read_is_found(store: DiskStore) -> None:
    digest = store.put_bytes(b"hello")
    assert store.read(digest) == b"hello"
    damage(blob_path(store, digest), b"hellp")
    with pytest.raises(BlobMissingError):
        store.read(digest)


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    data = bytes(range(48))
    for bit in range(0, len(data) * 8, 7):
        store = DiskStore(tmp_path, BLAKE3)
        digest = store.put_bytes(data)
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        damage(blob_path(store, digest), bytes(flipped))
        with pytest.raises(BlobMissingError):
            store.read(digest)


def test_a_blob_whose_checksum_was_lost_is_proved_by_its_name(store: DiskStore) -> None:
    whole, broken = store.put_bytes(b"whole"), store.put_bytes(b"broken")
    for digest in (whole, broken):
        path = blob_path(store, digest)
        if integrity.ATTRIBUTE in os.listxattr(path):
            path.chmod(0o644)
            os.removexattr(path, integrity.ATTRIBUTE)
        for index in (store.root / "v1/blake3/checksums").rglob(digest.hash):
            index.unlink()
    damage(blob_path(store, broken), b"brokem")
    assert store.read(whole) == b"whole"
    with pytest.raises(BlobMissingError):
        store.read(broken)


def test_a_truncated_blob_counts_as_missing_and_is_replaced(store: DiskStore) -> None:
    digest = store.put_bytes(b"hello")
    damage(blob_path(store, digest), b"hel")
    assert store.missing([digest]) == (digest,)
    store.put_bytes(b"hello")
    assert store.read(digest) == b"hello"


def test_torn_results_are_misses_and_go_away(store: DiskStore) -> None:
    store.put(KEY, result_of(store.put_bytes(b"out")))
    path = store.root / "v1/blake3/ac" / KEY.hash[:2] / KEY.hash
    whole = path.read_bytes()
    torn = [whole[:length] for length in range(len(whole))]
    torn += [whole + b"\0", b"\0" * len(whole), whole[:5] + b"!" + whole[6:]]
    for data in torn:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        assert store.get(KEY) is None
        assert not path.exists()
    store.put(KEY, result_of(store.put_bytes(b"out")))
    assert store.get(KEY) is not None


def test_a_result_with_a_good_checksum_that_is_no_message_is_a_miss(store: DiskStore) -> None:
    path = store.root / "v1/blake3/ac" / KEY.hash[:2] / KEY.hash
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x13\x14" + integrity.checksum_of_bytes(b"\x13\x14"))
    assert store.get(KEY) is None


def test_an_unreadable_result_is_a_miss(store: DiskStore) -> None:
    path = store.root / "v1/blake3/ac" / KEY.hash[:2] / KEY.hash
    path.mkdir(parents=True)
    assert store.get(KEY) is None


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.ESTALE, errno.EACCES])
def test_a_result_that_cannot_be_read_now_is_a_miss_and_stays(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    store.put(KEY, result_of(store.put_bytes(b"out")))

    def fail(_path: str) -> bytes:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr("mlcbuild.cache.disk._read_all", fail)
        assert store.get(KEY) is None
    assert store.get(KEY) is not None


NO_FILES = ["folder", "full folder", "pipe", "socket", "link to a folder", "link to itself", "dangling link"]


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_in_a_blobs_place_is_a_missing_blob_and_is_replaced(
    store: DiskStore, tmp_path: Path, kind: str
) -> None:
    digest = store.put_bytes(b"hello")
    put_elsewise(blob_path(store, digest), kind)
    for read in (store.read, store.open, store.path_of):
        with pytest.raises(BlobMissingError):
            read(digest)
        assert store.missing([digest]) == (digest,)
    put_elsewise(blob_path(store, digest), kind)
    assert store.put_bytes(b"hello") == digest
    assert store.read(digest) == b"hello"
    for number in range(2):  # Twice: what is set aside must not stand in the way of the next.
        put_elsewise(blob_path(store, digest), kind)
        source = tmp_path / f"source{number}"
        source.write_bytes(b"hello")
        assert store.put_file(source, move=True) == digest
        put_elsewise(blob_path(store, digest), kind)
        with store.receive(digest) as reception:
            reception.write(b"hello")
        assert store.read(digest) == b"hello"


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_in_a_results_place_is_a_miss_and_is_replaced(store: DiskStore, kind: str) -> None:
    result = result_of(store.put_bytes(b"out"))
    path = Path(store.result_path(KEY.hash))
    put_elsewise(path, kind)
    assert not store.contains(KEY)
    assert store.get(KEY) is None
    put_elsewise(path, kind)
    store.put(KEY, result)
    assert store.contains(KEY)
    assert store.get(KEY) == result


@pytest.mark.parametrize("folder", ["cas", "ac", "checksums"])
def test_a_file_in_a_folders_place_is_replaced(store: DiskStore, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrity, "write_attribute", lambda *_: False)
    digest = BLAKE3.of_bytes(b"hello")
    name = (KEY if folder == "ac" else digest).hash[:2]
    place = store.root / "v1/blake3" / folder / name
    place.parent.mkdir(exist_ok=True)
    place.write_text("a file")
    assert store.missing([digest]) == (digest,)
    assert store.get(KEY) is None
    with pytest.raises(BlobMissingError):
        store.read(digest)
    store.put_bytes(b"hello")
    store.put(KEY, result_of(digest))
    assert DiskStore(store.root, BLAKE3).read(digest) == b"hello"
    assert store.get(KEY) == result_of(digest)
