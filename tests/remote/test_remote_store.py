"""The layer over transports: right bytes or none, blobs before results, roles and signatures."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.remote.counters import MissReason
from mlcbuild.cache.remote.policy import RemotePolicy, RemoteRole, Upload
from mlcbuild.cache.remote.result_checksum import with_checksum
from mlcbuild.cache.remote.results import INLINE_BYTES, INLINE_BYTES_A_RESULT
from tests.remote.cache_world import machine, made
from tests.remote.memory_transport import BLAKE3, MemoryTransport
from tests.remote.remote_stores import filled, misses

# Hits


def test_what_one_machine_sends_another_takes(tmp_path: Path, server: MemoryTransport) -> None:
    (sent,) = filled(tmp_path / "a", server)
    other = machine(tmp_path / "b", server)
    assert other.takes(sent)
    counters = other.cache.counters
    assert (counters.hits, counters.missed, counters.blobs_lost) == (1, 0, 0)
    assert counters.bytes_downloaded >= sum(map(len, sent.files.values()))
    assert other.told == []


def test_every_blob_that_a_result_names_is_there_before_it(tmp_path: Path, server: MemoryTransport) -> None:
    one = machine(tmp_path, server)
    sent = made(one.store, 1)
    seen: list[set[Digest]] = []

    def fail(method: str) -> None:
        if method == "write_result":
            seen.append(set(server.blobs))

    server.fail = fail
    one.send(sent)
    one.cache.finish()
    tree = sent.result.output_directories[0].tree_digest
    assert sent.result.stdout_digest is not None
    assert {*sent.outputs, tree, sent.result.stdout_digest, sent.key} <= seen[0]
    assert one.cache.counters.results_uploaded == 1


def test_a_hit_with_small_outputs_costs_a_request_and_its_trees_another(tmp_path: Path) -> None:
    server = MemoryTransport()
    one = machine(tmp_path / "a", server)
    plain, folder = made(one.store, 1, sizes=(10, 0, 9000), below=()), made(one.store, 2, sizes=(10,), below=(7,))
    plain.result = dataclasses.replace(plain.result, output_directories=())
    for sent in (plain, folder):
        one.send(sent)
    one.cache.finish()
    for sent, requests in ((plain, {"read_result": 1}), (folder, {"read_result": 1, "download": 1})):
        other = machine(tmp_path / f"b{len(requests)}", server)
        server.calls.clear()
        assert other.cache.find(sent.key, other.store) is not None
        assert dict(server.calls) == requests
        assert other.store.missing([file.digest for file in sent.result.output_files]) == ()


def test_inlining_is_bounded_for_an_output_and_a_result(tmp_path: Path) -> None:
    server = MemoryTransport()
    one = machine(tmp_path, server)
    one.send(made(one.store, 1, sizes=[INLINE_BYTES] * 30 + [INLINE_BYTES + 1, 3], below=()))
    one.cache.finish()
    (data,) = server.results.values()
    inlined = [len(file.contents) for file in ActionResult.decode(data).output_files if file.contents]
    assert sorted(inlined) == [3] + [INLINE_BYTES] * 15
    assert sum(inlined) <= INLINE_BYTES_A_RESULT


def test_a_result_that_was_found_holds_no_small_bytes_but_a_large_manifest(tmp_path: Path) -> None:
    server = MemoryTransport()
    one = machine(tmp_path / "a", server)
    sent = made(one.store, 1, sizes=(10, INLINE_BYTES + 1), below=())
    files = [dataclasses.replace(file, contents=one.store.read(file.digest)) for file in sent.result.output_files]
    sent.result = dataclasses.replace(sent.result, output_files=tuple(files))
    one.send(sent)
    one.cache.finish()
    other = machine(tmp_path / "b", server)
    found = other.cache.find(sent.key, other.store)
    assert found is not None
    assert [len(file.contents) for file in found.output_files] == [0, INLINE_BYTES + 1]


def test_bytes_are_fetched_when_they_are_wanted_and_not_before(tmp_path: Path) -> None:
    server = MemoryTransport()
    one = machine(tmp_path / "a", server)
    sent = made(one.store, 1, sizes=(50_000,), below=())
    sent.result = dataclasses.replace(sent.result, output_directories=())
    one.send(sent)
    one.cache.finish()
    other = machine(tmp_path / "b", server)
    assert other.cache.find(sent.key, other.store) is not None
    assert server.calls["download"] == 0
    assert other.store.missing(sent.outputs) == sent.outputs


def test_somebody_elses_result_stays_unless_told_otherwise(tmp_path: Path) -> None:
    server = MemoryTransport()
    (sent,) = filled(tmp_path / "a", server)
    before = server.results[sent.key]
    for replaces in (False, True):
        one = machine(tmp_path / "b", server, replaces=replaces)
        again = made(one.store, 1)
        again.result = dataclasses.replace(again.result, stdout_raw=b"another")
        one.send(again)
        one.cache.finish()
        assert (server.results[sent.key] == before) != replaces


# Signatures


def test_what_is_signed_is_what_is_sent_and_what_is_checked(tmp_path: Path) -> None:
    server = MemoryTransport()
    signed: list[tuple[Digest, ActionResult]] = []

    def sign(key: Digest, result: ActionResult) -> ActionResult:
        signed.append((key, result))
        return dataclasses.replace(result, stderr_raw=b"signed")

    def check(_key: Digest, result: ActionResult) -> str:
        return "" if result.stderr_raw == b"signed" else "nobody signed it"

    one = machine(tmp_path / "a", server, hooks={"sign": sign, "check": check})
    sent, unsigned = made(one.store, 1), made(one.store, 2)
    one.send(sent)
    one.cache.finish()
    assert any(file.contents for file in signed[0][1].output_files)
    server.results[unsigned.key] = with_checksum(unsigned.key, unsigned.result, BLAKE3).encode()
    other = machine(tmp_path / "b", server, hooks={"sign": sign, "check": check})
    assert other.takes(sent)
    for _ in range(2):
        assert other.cache.find(unsigned.key, other.store) is None
    assert misses(other) == {MissReason.UNSIGNED: 2}
    (told,) = other.told
    assert "nobody signed it" in told
    other.send(made(other.store, 2))
    other.cache.finish()
    assert ActionResult.decode(server.results[unsigned.key]).stderr_raw == b"signed"


# Roles


@pytest.mark.parametrize(
    ("role", "upload", "reads", "writes"),
    [
        (RemoteRole.NONE, Upload.ALWAYS, False, False),
        (RemoteRole.READ, Upload.ALWAYS, True, False),
        (RemoteRole.READ_WRITE, Upload.NEVER, True, False),
        (RemoteRole.READ_WRITE, Upload.RESULTS, True, True),
        (RemoteRole.READ_WRITE, Upload.ALWAYS, True, True),
    ],
)
def test_roles(tmp_path: Path, role: RemoteRole, upload: Upload, reads: bool, writes: bool) -> None:
    server = MemoryTransport()
    (sent,) = filled(tmp_path / "a", server)
    one = machine(tmp_path / "b", server, role=role, upload=upload)
    assert one.takes(sent) == reads
    assert (sum(server.calls.values()) > 0) == reads
    one.send(made(one.store, 2))
    one.cache.finish()
    assert (len(server.results) == 2) == writes
    assert one.cache.sends_what_was_found == (writes and upload is Upload.ALWAYS)


# One download at a time


def test_a_blob_that_several_want_is_fetched_once(tmp_path: Path, server: MemoryTransport) -> None:
    (sent,) = filled(tmp_path / "a", server)
    one = machine(tmp_path / "b", server)
    server.fail = lambda _method: time.sleep(0.1)
    answers: list[tuple[Digest, ...]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(one.cache.fetch(sent.outputs, one.store))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [()] * 6
    assert one.cache.counters.blobs_downloaded == len(sent.outputs)


def test_policies_that_make_no_sense_are_refused() -> None:
    for wrong in ({"drain_seconds": -1.0}, {"downloads": 0}, {"uploads": 0}):
        with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
            RemotePolicy(**wrong)
