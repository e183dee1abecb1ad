"""A collection takes what was used longest ago, and never a blob from a result that stays."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.eviction import Limits, collect
from tests.cache.stores import (
    BLAKE3,
    DAY,
    EMPTY,
    HOUR,
    NOTHING,
    base_of,
    blob_file,
    check_store,
    contents,
    publish,
    result_file,
    there,
    used_at,
)

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
