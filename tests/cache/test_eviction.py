"""A collection takes what was used longest ago, and never a blob from a result that stays."""

from __future__ import annotations

import time

from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.eviction import Limits, collect
from tests.cache.stores import (
    BLAKE3,
    DAY,
    base_of,
    blob_file,
    check_store,
    contents,
    publish,
    used_at,
)


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
