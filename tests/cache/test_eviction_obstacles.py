"""Strays, damage, other collections and file systems that refuse stop no collection and no build."""

from __future__ import annotations

import fcntl
import os
import threading
import time

import pytest

from mlcbuild.cache import inventory
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.eviction import Limits, collect
from mlcbuild.cache.leases import collection_lock
from mlcbuild.cache.verification import verify
from tests.cache.stores import (
    BLAKE3,
    DAY,
    EMPTY,
    NOTHING,
    base_of,
    check_store,
    contents,
    publish,
    result_file,
    there,
)

# What else lies there


def test_stray_files_and_foreign_names_are_left_alone(store: DiskStore) -> None:
    publish(store, "a", files=[b"a"])
    store.release()
    base = base_of(store)
    strays = ["cas/notes", "cas/00/short", "cas/zz/" + "0" * 64, "cas/00/" + "A" * 64, "ac/ab/" + "0" * 64, "ac/x/y/z"]
    strays += ["leases/notes", "other/file", "cas/00/" + "00" + "f" * 61, "cas/ü"]
    for stray in strays:
        (base / stray).parent.mkdir(parents=True, exist_ok=True)
        (base / stray).write_text("mine")
    (base / "cas/00" / ("00" + "e" * 62)).symlink_to("/etc/passwd")
    (base / "ac/00").mkdir(exist_ok=True)
    (base / "ac/00" / ("00" + "e" * 62)).mkdir()
    collect(store.root, NOTHING)
    verify(store.root, base, BLAKE3)
    collect(store.root, NOTHING)
    assert [stray for stray in strays if not (base / stray).exists()] == []
    assert (base / "cas/00" / ("00" + "e" * 62)).is_symlink()
    assert contents(base, "cas") >= {EMPTY}
    assert not there(store, b"a")


@pytest.mark.parametrize("damage", [b"", b"x", b"\xff" * 200, bytes(range(256)) * 9])
def test_damaged_results_go_whatever_the_limits_are(store: DiskStore, damage: bytes) -> None:
    bad, good = publish(store, "bad", files=[b"bad"]), publish(store, "good", files=[b"good"])
    store.release()
    result_file(store, bad).write_bytes(damage)
    assert collect(store.root, Limits()).results == 1
    assert contents(base_of(store), "ac") == {good.hash}
    assert check_store(base_of(store)) == 1


def test_damaged_trees_and_keys_stop_nothing(store: DiskStore) -> None:
    keys = [publish(store, name, files=[name.encode()], directory=[b"inside"]) for name in ("a", "b")]
    store.release()
    for path in (base_of(store) / "cas").glob("*/*"):
        if path.stat().st_size > 60:
            path.chmod(0o644)
            path.write_bytes(os.urandom(100))
    collect(store.root, Limits(max_bytes=10**9, max_age_seconds=86_400))
    assert contents(base_of(store), "ac") == {key.hash for key in keys}
    collect(store.root, NOTHING)
    assert contents(base_of(store), "cas") == {EMPTY}


def test_a_quarantined_file_goes_with_its_age(store: DiskStore) -> None:
    digest = store.put_bytes(b"x" * 100)
    store.quarantine(digest.hash)
    store.release()
    assert collect(store.root, Limits(max_age_seconds=86_400)).leftovers == 0
    assert collect(store.root, Limits(max_age_seconds=86_400), now=lambda: time.time_ns() + 2 * DAY).leftovers == 1
    assert list((base_of(store) / "corrupt").iterdir()) == []


def test_checksums_in_the_index_go_with_their_blobs(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcbuild.cache import integrity

    monkeypatch.setattr(integrity, "write_attribute", lambda _descriptor, _checksum: False)
    digest = store.put_bytes(b"x" * 100)
    store.release()
    assert digest.hash in contents(base_of(store), "checksums")
    collect(store.root, NOTHING)
    assert digest.hash not in contents(base_of(store), "checksums")


def test_a_store_that_cannot_be_read_is_left_as_it_is(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    key = publish(store, "a", files=[b"a"], directory=[b"inside"])
    store.release()
    before = contents(base_of(store), "cas")
    read = inventory._content
    for folder in ("ac", "cas"):

        def refuse(path: str, folder: str = folder) -> bytes | None:
            if f"/{folder}/" in path:
                raise PermissionError(13, "Permission denied", path)
            return read(path)

        with monkeypatch.context() as patch:
            patch.setattr(inventory, "_content", refuse)
            with pytest.raises(PermissionError):
                collect(store.root, NOTHING)
        assert contents(base_of(store), "ac") == {key.hash}
        assert contents(base_of(store), "cas") == before


# Several at once


def test_a_collection_waits_for_another_and_says_so(store: DiskStore) -> None:
    publish(store, "a", files=[b"a"])
    store.release()
    told = threading.Event()
    with collection_lock(base_of(store)):
        second = threading.Thread(target=lambda: collect(store.root, NOTHING, on_wait=told.set))
        second.start()
        assert told.wait(30)
        assert there(store, b"a")
    second.join(30)
    assert not there(store, b"a")


def test_a_file_system_without_locks_is_no_obstacle(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    build = DiskStore(store.root, BLAKE3)
    key = publish(build, "held", files=[b"held"])
    store.put_bytes(b"left")
    collect(store.root, NOTHING)
    assert contents(base_of(store), "ac") == {key.hash}, "its process may live: nobody can tell"
    assert check_store(base_of(store)) == 1


def test_a_full_disk_stops_no_build_from_using_the_store(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    key = publish(store, "a", files=[b"a"])
    store.release()
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        return real(descriptor, data[:5]) if len(data) == 32 else real(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        assert store.get(key) is not None
        store.missing([BLAKE3.of_bytes(b"a")])
    assert store.contains(key)
    collect(store.root, NOTHING)
    assert contents(base_of(store), "ac") == {key.hash}, "what was written down after the disk had space again counts"


def test_a_collection_that_is_stopped_amid_a_removal_stops_no_build_and_looks_again(store: DiskStore) -> None:
    key = publish(store, "a", files=[b"a"])
    store.release()
    build = DiskStore(store.root, BLAKE3)
    with collection_lock(base_of(store)) as leases, leases.removal_lock():
        assert key.hash not in leases
        began = time.monotonic()
        assert build.get(key) is not None
        assert 1.0 < time.monotonic() - began < 10.0
        assert key.hash in leases


def test_files_that_cannot_be_removed_are_counted_and_stop_nothing(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [publish(store, str(number), files=[b"%d" % number]) for number in range(4)]
    store.release()
    real = os.unlink

    def unlink(path: str) -> None:
        if str(path).endswith(keys[0].hash) and "/ac/" in str(path):
            raise PermissionError(13, "Permission denied")
        real(path)

    monkeypatch.setattr(os, "unlink", unlink)
    collected = collect(store.root, NOTHING)
    assert (collected.results, collected.failed) == (3, 1)
    assert collected.reason == f"{result_file(store, keys[0])}: Permission denied"
    assert check_store(base_of(store)) == 1


def test_results_can_be_read_by_who_may_read_the_store(store: DiskStore) -> None:
    key = publish(store, "a", files=[b"a"])
    umask = os.umask(0)
    os.umask(umask)
    assert result_file(store, key).stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_result_of_another_user_that_cannot_be_read_is_a_miss_and_stays(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = publish(store, "a", files=[b"a"])

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert store.get(key) is None
    assert store.get(key) is not None
