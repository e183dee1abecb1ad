"""Machines that share a server which fails by chance: never a wrong byte, never a result without its blobs."""

from __future__ import annotations

import dataclasses
import random
import tempfile
import threading
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.merkle import files_of
from mlcbuild.cache.reapi import ActionResult, OutputFile, Tree
from mlcbuild.cache.remote.results import blobs_in
from tests.remote.cache_world import Machine, machine, made
from tests.remote.memory_transport import BatchingMemoryTransport, Chance, MemoryTransport, flipped

ATTEMPTS = 3  # as `cache_world.policy` has it
KEYS = 5

likely = st.sampled_from([0.0, 0.0, 0.05, 0.3])
chances = st.builds(
    Chance,
    seed=st.integers(0, 1 << 32),
    transient=likely,
    lost_answer=likely,
    cut=likely,
    flip=likely,
    spoil=likely,
    evict=st.sampled_from([0.0, 0.0, 0.1]),
    refuse=st.sampled_from([0.0, 0.0, 0.02]),
)
step = st.tuples(st.sampled_from(["send", "take", "take at once"]), st.integers(0, 2), st.integers(0, KEYS - 1))


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


def run(folder: Path, server: MemoryTransport, steps: list[tuple[str, int, int]], *, asks: bool) -> list[Machine]:
    machines = [
        machine(folder / str(number), server, seed=server.chance.seed + number, asks_for_blobs=asks)
        for number in range(3)
    ]
    for kind, who, what in steps:
        one = machines[who]
        sizes = (what * 300, 17, 40_000 if what == 1 else 5)
        if kind == "send":
            one.send(made(one.store, what, sizes=sizes, below=(what * 900,)))
        else:
            other = machines[2 - who]
            reference = made(other.store, what, sizes=sizes, below=(what * 900,))
            threads = 3 if kind == "take at once" else 1
            wrong: list[BaseException] = []

            def take(one: Machine = one, reference: object = reference, wrong: list[BaseException] = wrong) -> None:
                try:
                    one.takes(reference)  # type: ignore[arg-type]
                except BaseException as error:
                    wrong.append(error)

            running = [threading.Thread(target=take) for _ in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
            assert not wrong, wrong
    for one in machines:
        one.cache.finish()
    return machines


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(chance=chances, steps=st.lists(step, max_size=14), batches=st.booleans(), asks=st.booleans())
@example(
    chance=Chance(seed=1, transient=0.3, lost_answer=0.3, cut=0.3, flip=0.3, spoil=0.3, evict=0.1),
    steps=[(kind, who, what) for what in range(KEYS) for kind, who in (("send", 0), ("take at once", 2), ("take", 1))],
    batches=True,
    asks=False,
)
def test_whatever_a_server_does(chance: Chance, steps: list[tuple[str, int, int]], batches: bool, asks: bool) -> None:
    kind = BatchingMemoryTransport if batches else MemoryTransport
    server = kind(chance=dataclasses.replace(chance), spoil_with=spoiled)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        machines = run(folder, server, steps, asks=asks)
        assert incomplete(server) == []
        for one in machines:
            check_store(one, server.function)
        sends = sum(kind == "send" for kind, _, _ in steps)
        looks = sum({"send": 0, "take": 1, "take at once": 3}[kind] for kind, _, _ in steps)
        assert server.calls["read_result"] <= looks * ATTEMPTS
        assert server.calls["write_result"] <= sends * ATTEMPTS
        most_blobs = 10  # of one result: outputs, Tree, log, Action, Command
        assert server.calls["download"] + server.calls["download_many"] <= looks * most_blobs * 2 * ATTEMPTS
        assert server.calls["upload"] + server.calls["upload_many"] <= sends * most_blobs * ATTEMPTS
        totals = [one.cache.counters for one in machines]
        assert sum(each.hits + each.missed for each in totals) == looks
        assert sum(each.uploads_dropped for each in totals) <= sends
        for one in machines:
            assert len(one.told) <= 12, one.told


def check_store(one: Machine, function: DigestFunction) -> None:
    """Every blob is what its name says, by its bytes, and nothing is left half received."""
    base = one.store.root / "v1" / function.value
    for path in (base / "cas").rglob("*"):
        if path.is_file():
            assert function.of_file(path).hash == path.name
    assert not [path for path in (base / "tmp").rglob("*") if path.is_file()]
