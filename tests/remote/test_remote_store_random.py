"""Machines that share a server which fails by chance: never a wrong byte, never a result without its blobs."""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.merkle import files_of
from mlcbuild.cache.reapi import ActionResult, OutputFile, Tree
from mlcbuild.cache.remote.results import blobs_in
from tests.remote.cache_world import Machine, Made, machine, made
from tests.remote.memory_transport import BatchingMemoryTransport, Chance, MemoryTransport, flipped

ATTEMPTS = 3  # as `cache_world.policy` has it
KEYS = 3
TAKES = {"take": 1, "take at once": 3}  # threads

Step = tuple[str, int, int]  # what is done, by which machine, with which key


def scenario(seed: int) -> tuple[Chance, list[Step]]:
    chosen = random.Random(seed)

    def likely(*values: float) -> float:
        return chosen.choice(values)

    chance = Chance(
        seed=seed,
        transient=likely(0, 0.05, 0.2),
        lost_answer=likely(0, 0.05, 0.2),
        cut=likely(0, 0.1, 0.3),
        flip=likely(0, 0.1, 0.5),
        spoil=likely(0, 0.1, 0.5),
        evict=likely(0, 0, 0.1),
        refuse=likely(0, 0, 0.01),
    )
    kinds = ["send and wait"] * 3 + ["send", "take at once"] + ["take"] * 3
    return chance, [(chosen.choice(kinds), chosen.randrange(3), chosen.randrange(KEYS)) for _ in range(20)]


def spoiled(chance: random.Random, key: Digest, data: bytes) -> bytes:
    """A result with another one's bytes, a failure's, an escaping path, or what is none."""
    result = ActionResult.decode(data)
    match chance.randrange(5):
        case 0:
            return flipped(data)
        case 1:
            return data[: len(data) // 2]
        case 2:
            return dataclasses.replace(result, exit_code=1).encode()
        case 3:
            outside = OutputFile(path="../../outside", digest=key)
            return dataclasses.replace(result, output_files=(outside,)).encode()
        case _:
            files = tuple(dataclasses.replace(file, contents=flipped(file.contents)) for file in result.output_files)
            return dataclasses.replace(result, output_files=files, stdout_raw=b"x").encode()


def incomplete(server: MemoryTransport) -> list[Digest]:
    """Blobs that results on the server name and it lacks, though it has lost none of them by itself."""
    lacking = []
    for data in server.results.values():
        result = ActionResult.decode(data)
        named = list(blobs_in(result))
        for directory in result.output_directories:
            tree = server.blobs.get(directory.tree_digest)
            named += [file.digest for file in files_of(Tree.decode(tree), server.function)] if tree else []
        lacking += [digest for digest in named if digest.size_bytes and digest not in server.blobs]
    return [digest for digest in lacking if digest not in server.evicted]


def take(one: Machine, wanted: Made, threads: int) -> None:
    wrong: list[BaseException] = []

    def take_once() -> None:
        try:
            one.takes(wanted)
        except BaseException as error:
            wrong.append(error)

    running = [threading.Thread(target=take_once) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not wrong, wrong


def run(folder: Path, server: MemoryTransport, steps: list[Step], *, asks: bool) -> list[Machine]:
    elsewhere = DiskStore(folder / "elsewhere", server.function)
    machines = [
        machine(folder / str(number), server, seed=server.chance.seed + number, asks_for_blobs=asks)
        for number in range(3)
    ]
    for kind, who, what in steps:
        one, shape = machines[who], {"sizes": (what * 300, 17, 20_000 + what), "below": (what * 900, 17_000)}
        if kind in TAKES:
            take(one, made(elsewhere, what, **shape), TAKES[kind])
            continue
        one.send(made(one.store, what, **shape))
        while "wait" in kind and one.cache.sending:
            time.sleep(0.001)
    for one in machines:
        one.cache.finish()
    return machines


def check(seed: int, folder: Path) -> None:
    chance, steps = scenario(seed)
    kind = BatchingMemoryTransport if seed % 2 else MemoryTransport
    server = kind(chance=chance, spoil_with=spoiled)
    machines = run(folder, server, steps, asks=seed % 4 < 2)
    assert incomplete(server) == []
    for one in machines:
        check_store(one, server.function)
        assert len(one.told) <= 12, one.told
    looks = sum(TAKES.get(kind, 0) for kind, _, _ in steps)
    sends = sum(kind not in TAKES for kind, _, _ in steps)
    assert server.calls["read_result"] <= looks * ATTEMPTS
    assert server.calls["write_result"] <= sends * ATTEMPTS
    most_blobs = 10  # of one result: outputs, Tree, log, Action, Command
    assert server.calls["download"] + server.calls["download_many"] <= looks * most_blobs * 2 * ATTEMPTS
    assert server.calls["upload"] + server.calls["upload_many"] <= sends * most_blobs * ATTEMPTS
    totals = [one.cache.counters for one in machines]
    assert sum(each.hits + each.missed for each in totals) == looks
    assert sum(each.uploads_dropped for each in totals) <= sends


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_server_does(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 1040))
def test_whatever_a_server_does_a_thousand_times(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


def check_store(one: Machine, function: DigestFunction) -> None:
    """Every blob is what its name says, by its bytes, and nothing is left half received."""
    base = one.store.root / "v1" / function.value
    for path in (base / "cas").rglob("*"):
        if path.is_file():
            assert function.of_file(path).hash == path.name
    assert not [path for path in (base / "tmp").rglob("*") if path.is_file()]
