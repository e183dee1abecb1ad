"""Random stores, limits, processes and kills: no result is ever left without its blobs, and no build without what it
was told is there.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from benchmarks.eviction import BLOBS_A_RESULT, fill
from mlcbuild.cache import eviction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.eviction import Limits, collect
from mlcbuild.cache.inventory import stored_bytes, take_inventory
from mlcbuild.cache.verification import verify
from tests.cache.stores import BLAKE3, DAY, base_of, blob_file, check_store, contents, publish, result_file, used_at

USERS = Path(__file__).with_name("store_users.py")
EMPTY = BLAKE3.of_bytes(b"").hash


@dataclass
class Model:
    """What a store holds, known without looking: results with their ages and blobs."""

    store: DiskStore
    blobs: dict[str, int] = field(default_factory=dict)  # hash → bytes on the disk
    results: dict[str, tuple[int, frozenset[str], int]] = field(default_factory=dict)  # hash → used, blobs, bytes

    def publish(self, name: int, files: Sequence[int], used: int) -> None:
        before = contents(base_of(self.store), "cas")
        key = publish(self.store, str(name), files=[bytes([n]) * (n * 3000 + 1) for n in files], log=b"log")
        used_at(self.store, key, used)
        for blob in contents(base_of(self.store), "cas") - before - {EMPTY}:
            self.blobs[blob] = stored_bytes((base_of(self.store) / "cas" / blob[:2] / blob).stat().st_size)
        named = {BLAKE3.of_bytes(bytes([n]) * (n * 3000 + 1)).hash for n in files}
        named |= {BLAKE3.of_bytes(data).hash for data in (b"log", f"breakdown of {name}".encode(), b"")} - {EMPTY}
        named |= {key.hash, *self._rest_of_key(name)}
        size = stored_bytes(result_file(self.store, key).stat().st_size)
        self.results[key.hash] = (used, frozenset(named), size)

    def _rest_of_key(self, name: int) -> set[str]:
        from mlcbuild.cache.reapi import Command

        return {BLAKE3.of_bytes(Command(arguments=(str(name),)).encode()).hash}

    @property
    def bytes(self) -> int:
        return sum(self.blobs.values()) + sum(size for _, _, size in self.results.values())

    def evict_oldest(self) -> None:
        oldest = min(self.results, key=lambda key: self.results[key][0])
        _, named, _ = self.results.pop(oldest)
        still = frozenset().union(*(blobs for _, blobs, _ in self.results.values()))
        for blob in named - still:
            self.blobs.pop(blob, None)

    def collect(self, limits: Limits, now: int, unnamed_at: dict[str, int]) -> None:
        """Blobs that no result names were stored after `now`, so they are younger than any result."""
        age = limits.max_age_seconds
        while self.results and (
            (limits.max_bytes is not None and self.bytes > limits.max_bytes)
            or (age is not None and min(used for used, _, _ in self.results.values()) < now - int(age * 1e9))
        ):
            self.evict_oldest()
        named = frozenset().union(*(blobs for _, blobs, _ in self.results.values()))
        for blob in sorted(set(self.blobs) - named, key=lambda blob: (unnamed_at[blob], blob)):
            if limits.max_bytes is not None and self.bytes > limits.max_bytes:
                del self.blobs[blob]

    def check(self) -> None:
        base = base_of(self.store)
        assert contents(base, "ac") == set(self.results)
        assert contents(base, "cas") - {EMPTY} == set(self.blobs)


replaced: list[tuple[object, ...]] = [("publish", 0, [1, 2], 3), ("publish", 0, [2, 3], 2), ("size", 0)]
operations = st.one_of(
    st.tuples(
        st.just("publish"),
        st.integers(0, 9),
        st.lists(st.integers(0, 15), max_size=4),
        st.integers(0, 100),
    ),
    st.tuples(st.just("size"), st.integers(0, 400_000)),
    st.tuples(st.just("age"), st.integers(0, 100)),
    st.tuples(st.just("use"), st.integers(0, 9)),
    st.tuples(st.just("both"), st.integers(0, 400_000), st.integers(0, 100)),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(operations, max_size=25))
@example(replaced)
def test_a_store_does_what_a_simple_model_does(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[object, ...]]
) -> None:
    store = DiskStore(tmp_path_factory.mktemp("store"), BLAKE3)
    model = Model(store)
    now = time.time_ns()
    for count, operation in enumerate(operations):
        match operation:
            case "publish", int(name), list(files), int(days):
                model.publish(name, files, now - days * DAY - count)
            case "use", int(index) if model.results:
                key = sorted(model.results)[index % len(model.results)]
                file = base_of(store) / "ac" / key[:2] / key
                os.utime(file, ns=(now - count, now - count))
                model.results[key] = (now - count, *model.results[key][1:])
            case "use", _:
                pass
            case kind, int(first), *rest:
                days = next((day for day in rest if isinstance(day, int)), first)
                limits = Limits(
                    max_bytes=first if kind in ("size", "both") else None,
                    max_age_seconds=days * 86_400 if kind in ("age", "both") else None,
                )
                store.release()
                used = {path.name: path.stat() for path in (base_of(store) / "cas").glob("*/*")}
                collected = collect(store.root, limits, now=lambda: now)
                model.collect(
                    limits, now, {name: max(each.st_ctime_ns, each.st_atime_ns) for name, each in used.items()}
                )
                model.check()
                assert collected.kept_bytes == model.bytes
        check_store(base_of(store))


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("seed", range(3))
def test_a_collection_that_ends_anywhere_leaves_every_result_its_blobs(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    removals = 0
    for stop in range(10_000):
        choose = random.Random(seed)
        store = DiskStore(tmp_path / str(stop), BLAKE3)
        now = time.time_ns()
        for name in range(5):
            files = [bytes([choose.randrange(6)]) * 5000 for _ in range(2)]
            inside = [bytes([choose.randrange(6)]) * 5000 for _ in range(2)]
            key = publish(store, str(name), files=files, directory=inside, log=b"log")
            used_at(store, key, now - choose.randrange(100) * DAY)
        store.release()
        removals = 0

        def remove(path: str, stop: int = stop) -> str:
            nonlocal removals
            if removals >= stop:  # Nor does another thread remove anything after the end.
                raise Killed
            removals += 1
            os.unlink(path) if os.path.exists(path) else None  # noqa: PTH108, PTH110
            return ""

        with monkeypatch.context() as patch:
            patch.setattr(eviction, "_remove", remove)
            try:
                collect(store.root, Limits(max_bytes=0))
            except Killed:
                check_store(base_of(store))
                patch.undo()
                collect(store.root, Limits(max_bytes=0))
                assert contents(base_of(store), "cas") == {EMPTY}
            else:
                break
    assert removals > 20


def start(root: Path, role: str, seed: int, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(USERS), str(root), role, str(seed), str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


def use_at_once(root: Path, *, builders: int, collectors: int, seed: int, seconds: float) -> None:
    """Builders and collectors on one store, half of which are killed; then everything must be right."""
    choose = random.Random(seed)
    roles = ["builder"] * builders + ["collector"] * collectors
    processes = [start(root, role, seed * 100 + index, seconds) for index, role in enumerate(roles)]
    killed = set(choose.sample(range(len(processes)), len(processes) // 2))
    ends = sorted((0.5 + choose.random() * seconds, index) for index in killed)
    began = time.monotonic()
    for moment, index in ends:
        time.sleep(max(0.0, began + moment - time.monotonic()))
        processes[index].send_signal(signal.SIGKILL)
    for index, process in enumerate(processes):
        _, err = process.communicate(timeout=120)
        # One that is killed at its very end has said what it did, or has ended.
        assert process.returncode in ((0, -signal.SIGKILL) if index in killed else (0,)), err
    base = root / "v1/blake3"
    check_store(base)
    found = verify(root, base, BLAKE3)
    assert (found.damaged, found.lacking) == ([], {})
    collect(root, Limits(max_bytes=0))
    assert contents(base, "ac") == set()
    assert contents(base, "cas") == {EMPTY}
    assert list((base / "tmp").iterdir()) == []
    assert list(base.glob("leases/*")) == []  # A builder that was killed soon has not even made the folder.


@pytest.mark.parametrize(("builders", "collectors", "seed"), [(1, 1, 1), (4, 2, 2)])
def test_processes_that_are_killed_at_any_moment(tmp_path: Path, builders: int, collectors: int, seed: int) -> None:
    use_at_once(tmp_path, builders=builders, collectors=collectors, seed=seed, seconds=3.0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(100))
def test_processes_that_are_killed_at_any_moment_many_times(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    use_at_once(tmp_path, builders=choose.randint(2, 8), collectors=choose.randint(1, 3), seed=seed + 1000, seconds=4.0)


@pytest.mark.exhaustive
def test_a_hundred_thousand_blobs_take_seconds(tmp_path: Path) -> None:
    results = 100_000 // BLOBS_A_RESULT
    keys = fill(tmp_path, results)
    base = tmp_path / "v1/blake3"
    half = take_inventory(base, BLAKE3).stored_bytes // 2
    began = time.process_time()
    collected = collect(tmp_path, Limits(max_bytes=half))
    seconds = time.process_time() - began  # Of the wall, a machine that does other work takes any number.
    assert results // 2 - 10 < collected.results < results // 2 + 10
    assert contents(base, "ac") == {key.hash for key in keys[collected.results :]}, "the oldest went"
    assert check_store(base) == results - collected.results
    assert seconds < 30


@pytest.mark.exhaustive
def test_two_collections_at_once_do_the_work_of_one(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, BLAKE3)
    for name in range(300):
        publish(store, str(name), files=[b"%d" % name * 2000])
    store.release()
    processes = [start(tmp_path, "collector", seed, 2.0) for seed in range(3)]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert contents(base_of(store), "ac") == set()
    assert not blob_file(store, BLAKE3.of_bytes(b"7" * 2000)).exists()
