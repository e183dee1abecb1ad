"""A collection takes what was used longest ago, and never a blob from a result that stays."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mlcbuild.cache import inventory
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.eviction import Limits, collect
from mlcbuild.cache.leases import collection_lock
from mlcbuild.cache.verification import verify
from tests.cache.stores import (
    BLAKE3,
    DAY,
    HOUR,
    base_of,
    blob_file,
    check_store,
    contents,
    publish,
    result_file,
    used_at,
)

NOTHING = Limits(max_bytes=0)
EMPTY = BLAKE3.of_bytes(b"").hash


def there(store: DiskStore, data: bytes) -> bool:
    return blob_file(store, BLAKE3.of_bytes(data)).exists()


# What goes


def test_what_was_used_longest_ago_goes_first(store: DiskStore) -> None:
    now = time.time_ns()
    keys = [publish(store, f"a{n}", files=[bytes([n]) * 100_000]) for n in range(4)]
    for days, key in zip((2, 9, 1, 5), keys, strict=True):
        used_at(store, key, now - days * DAY)
    store.release()
    base = base_of(store)
    collected = collect(store.root, Limits(max_bytes=300_000))
    assert contents(base, "ac") == {keys[0].hash, keys[2].hash}
    assert collected.results == 2
    assert collected.kept_bytes <= 300_000 < collected.kept_bytes + collected.freed_bytes
    assert check_store(base) == 2


def test_what_was_not_used_for_too_long_goes(store: DiskStore) -> None:
    now = time.time_ns()
    old, young = publish(store, "old", files=[b"old"]), publish(store, "young", files=[b"young"])
    used_at(store, old, now - 31 * DAY)
    used_at(store, young, now - 29 * DAY)
    store.release()
    base = base_of(store)
    collect(store.root, Limits(max_age_seconds=30 * 86_400))
    assert contents(base, "ac") == {young.hash}
    assert not blob_file(store, BLAKE3.of_bytes(b"old")).exists()
    assert check_store(base) == 1


def test_blobs_that_another_result_names_stay(store: DiskStore) -> None:
    old = publish(store, "old", files=[b"shared", b"own"], directory=[b"in both", b"in old"], log=b"log")
    young = publish(store, "young", files=[b"shared"], directory=[b"in both"])
    used_at(store, old, 0)
    store.release()
    collect(store.root, Limits(max_age_seconds=86_400))
    assert store.get(old) is None
    assert store.get(young) is not None
    for data, stays in ((b"shared", True), (b"own", False), (b"in both", True), (b"in old", False), (b"log", False)):
        assert blob_file(store, BLAKE3.of_bytes(data)).exists() == stays, data
    assert check_store(base_of(store)) == 1


def test_blobs_that_no_result_names_go_when_their_time_comes(store: DiskStore) -> None:
    store.put_bytes(b"a source")
    publish(store, "a", files=[b"output"], sources=[b"its source"])
    store.release()
    collect(store.root, Limits(max_age_seconds=86_400))
    assert there(store, b"a source")
    assert there(store, b"its source")
    collect(store.root, Limits(max_age_seconds=86_400), now=lambda: time.time_ns() + 2 * DAY)
    assert not there(store, b"a source")
    assert contents(base_of(store), "cas") == {EMPTY}


def test_limits_hold_over_both_digest_functions(tmp_path: Path) -> None:
    from mlcbuild.cache.digest import DigestFunction

    stores = [DiskStore(tmp_path, function) for function in DigestFunction]
    keys = [publish(store, "a", files=[b"x" * 100_000]) for store in stores]
    used_at(stores[0], keys[0], time.time_ns() - DAY)
    for store in stores:
        store.release()
    collect(tmp_path, Limits(max_bytes=150_000))
    assert [len(contents(base_of(store), "ac")) for store in stores] == [0, 1]


def test_negative_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        Limits(max_bytes=-1)


# What counts as use


def test_a_hit_counts_as_use_once_an_hour(store: DiskStore) -> None:
    key = publish(store, "a", files=[b"a"])
    for ask in (lambda: store.get(key), lambda: store.contains(key)):
        for age, is_new in ((3 * DAY, True), (HOUR // 2, False), (-3 * DAY, True)):
            then = time.time_ns() - age
            used_at(store, key, then)
            ask()
            used = result_file(store, key).stat().st_mtime_ns
            assert (used != then) == is_new
            assert abs(used - time.time_ns()) < HOUR


def test_use_changes_nothing_about_a_blob(store: DiskStore) -> None:
    key = publish(store, "a", files=[b"output"])
    blob = blob_file(store, BLAKE3.of_bytes(b"output"))
    before = blob.stat()
    used_at(store, key, 0)
    store.get(key)
    store.missing([BLAKE3.of_bytes(b"output")])
    store.put_bytes(b"output")
    collect(store.root, Limits(max_bytes=10**9))
    after = blob.stat()
    assert (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns)


# What stays


def test_what_a_running_build_was_told_of_stays(store: DiskStore) -> None:
    found, asked, stored = (publish(store, name, files=[name.encode()]) for name in ("found", "asked", "stored"))
    store.put_bytes(b"a source")
    store.release()
    build = DiskStore(store.root, BLAKE3)
    assert build.get(found) is not None
    assert build.missing([BLAKE3.of_bytes(b"a source"), BLAKE3.of_bytes(b"asked")]) == ()
    build.put_bytes(b"stored")
    collect(store.root, NOTHING)
    assert contents(base_of(store), "ac") == {found.hash}
    assert all(there(store, data) for data in (b"found", b"asked", b"stored", b"a source"))
    assert asked.hash not in contents(base_of(store), "ac")
    assert stored.hash not in contents(base_of(store), "ac")
    build.release()
    collect(store.root, NOTHING)
    assert contents(base_of(store), "cas") == {EMPTY}


def test_results_that_a_build_will_look_up_stay_from_the_moment_it_says_so(store: DiskStore) -> None:
    first, second, other = (publish(store, name, files=[name.encode()]) for name in ("first", "second", "other"))
    store.release()
    build = DiskStore(store.root, BLAKE3)
    build.protect([first, second, BLAKE3.of_bytes(b"a key without a result")])
    collect(store.root, NOTHING)
    assert contents(base_of(store), "ac") == {first.hash, second.hash}
    assert build.contains(first)
    assert not build.contains(other)


def test_a_build_that_comes_while_things_are_removed_keeps_what_it_finds(store: DiskStore) -> None:
    keys = [publish(store, str(number), files=[b"%d" % number * 50]) for number in range(600)]
    store.release()
    build = DiskStore(store.root, BLAKE3)
    seen: list[int] = []

    def look(what: str, done: int, total: int) -> None:
        if what == "removing results":
            seen.append(sum(build.get(key) is not None for key in keys[done : done + 3] + keys[-3:]))

    collect(store.root, NOTHING, progress=look)
    assert seen[0] == 6, "nothing was removed yet"
    assert check_store(base_of(store)) >= 3
    for key in keys[-3:]:
        result = build.get(key)
        assert result is not None
        for file in result.output_files:
            build.read(file.digest)


def test_what_a_build_published_since_the_store_was_listed_stays_although_it_has_ended(store: DiskStore) -> None:
    store.put_bytes(b"shared")
    store.release()
    ended: list[str] = []

    def build(what: str, _done: int, _total: int) -> None:
        if what == "removing blobs" and not ended:
            other = DiskStore(store.root, BLAKE3)
            ended.append(publish(other, "a", files=[b"shared"]).hash)
            other.release()

    collect(store.root, NOTHING, progress=build)
    assert contents(base_of(store), "ac") == set(ended)
    assert there(store, b"shared")
    assert check_store(base_of(store)) == 1
    collect(store.root, NOTHING)
    assert not there(store, b"shared")


def test_a_result_that_was_replaced_meanwhile_stays(store: DiskStore) -> None:
    key = publish(store, "a", files=[b"a"])
    store.release()
    file = result_file(store, key)

    def replace(what: str, _done: int, _total: int) -> None:
        if what == "removing results":
            file.with_name("new").write_bytes(file.read_bytes())
            file.with_name("new").replace(file)

    collect(store.root, NOTHING, progress=replace)
    assert file.exists()
    assert check_store(base_of(store)) == 1


def test_a_build_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    script = (
        "import os, sys, pathlib\nfrom mlcbuild.cache.disk import DiskStore\n"
        "from mlcbuild.cache.digest import DigestFunction\n"
        "store = DiskStore(pathlib.Path(sys.argv[1]), DigestFunction.BLAKE3)\nstore.put_bytes(b'left')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == -9
        leases = tmp_path / "v1/blake3/leases"
        assert len(list(leases.iterdir())) == 1, "the second removes what the first left"
    collect(tmp_path, NOTHING)
    assert contents(tmp_path / "v1/blake3", "cas") == {EMPTY}
    assert list(leases.iterdir()) == []


def test_a_process_that_ends_leaves_no_file(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\nfrom mlcbuild.cache.disk import DiskStore\n"
        "from mlcbuild.cache.digest import DigestFunction\n"
        "store = DiskStore(pathlib.Path(sys.argv[1]), DigestFunction.BLAKE3)\nstore.put_bytes(b'left')\n"
        "assert list((pathlib.Path(sys.argv[1]) / 'v1/blake3/leases').iterdir())\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    assert list((tmp_path / "v1/blake3/leases").iterdir()) == []


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
