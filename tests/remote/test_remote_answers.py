"""What a remote cache may answer: wrong bytes, cut downloads, foreign and damaged results are no hits."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult, AnyMessage, ExecutedActionMetadata, OutputFile, OutputSymlink
from mlcbuild.cache.remote.counters import MissReason
from mlcbuild.cache.remote.result_checksum import with_checksum
from mlcbuild.cache.remote.signing import Signatures
from tests.remote.cache_world import machine, made
from tests.remote.memory_transport import BLAKE3, MemoryTransport, flipped
from tests.remote.remote_stores import filled, misses
from tests.remote.test_signing import private_key

# Wrong bytes


def test_wrong_bytes_once_are_asked_for_again(tmp_path: Path, server: MemoryTransport) -> None:
    (sent,) = filled(tmp_path / "a", server)
    reads = []
    read = server._read

    def once(digest: Digest) -> bytes | None:
        reads.append(digest)
        data = read(digest)
        return flipped(data) if data and reads.count(digest) == 1 else data

    server._read = once  # type: ignore[method-assign]
    other = machine(tmp_path / "b", server)
    assert other.takes(sent)
    assert other.told == []
    assert other.cache.counters.blobs_wrong > 0


def test_wrong_bytes_twice_count_as_absent_and_name_blob_and_server(tmp_path: Path, server: MemoryTransport) -> None:
    (sent,) = filled(tmp_path / "a", server)
    victim = sent.result.output_files[1].digest
    server.blobs[victim] = flipped(server.blobs[victim])
    other = machine(tmp_path / "b", server)
    assert not other.takes(sent)
    assert other.store.missing([victim]) == (victim,)
    (told,) = other.told
    assert str(victim) in told
    assert server.address in told
    assert other.cache.counters.blobs_lost == 1


@pytest.mark.parametrize("size", [20_000, 100_000])
def test_a_download_that_is_cut_begins_anew(tmp_path: Path, size: int) -> None:
    """Small blobs are gathered in memory, large ones in a file."""
    server = MemoryTransport()
    one = machine(tmp_path / "a", server)
    sent = made(one.store, 1, sizes=(size,))
    one.send(sent)
    one.cache.finish()
    cuts = iter([1.0, 0.0] * 20)
    happens = server._happens
    server._happens = lambda likely: next(cuts) > 0 if likely == 0.5 else happens(likely)  # type: ignore[method-assign]
    server.chance.cut = 0.5
    other = machine(tmp_path / "b", server, downloads=1)
    assert other.takes(sent)
    assert other.cache.counters.retries > 0
    assert other.cache.counters.blobs_wrong == 0


# Results that are no hits


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exit_code": 1}, MissReason.INVALID),
        ({"output_symlinks": (OutputSymlink(path="s", target="/etc/passwd"),)}, MissReason.INVALID),
        ({"output_files": (OutputFile(path="../x", digest=BLAKE3.of_bytes(b"")),)}, MissReason.INVALID),
        ({"output_files": (OutputFile(path="/x", digest=BLAKE3.of_bytes(b"")),)}, MissReason.INVALID),
        ({"output_files": (OutputFile(path="x", digest=BLAKE3.of_bytes(b"a"), contents=b"b"),)}, MissReason.INVALID),
        ({"output_files": (OutputFile(path="x", digest=BLAKE3.of_bytes(b"")),) * 2}, MissReason.INVALID),
    ],
)
def test_a_result_that_nothing_of_ours_writes_is_a_miss_and_written_over(
    tmp_path: Path, changes: dict[str, object], reason: MissReason
) -> None:
    server = MemoryTransport()
    one = machine(tmp_path, server)
    sent = made(one.store, 1)
    forged = dataclasses.replace(sent.result, **changes)  # type: ignore[arg-type]
    server.results[sent.key] = with_checksum(sent.key, forged, BLAKE3).encode()
    assert one.cache.find(sent.key, one.store) is None
    assert misses(one) == {reason: 1}
    one.send(sent)
    one.cache.finish()
    assert machine(tmp_path / "b", server).takes(sent)


@pytest.mark.parametrize("data", [b"", b"\xff" * 9, b"<html>not found</html>"])
def test_bytes_that_are_no_result_are_a_miss(tmp_path: Path, data: bytes) -> None:
    server = MemoryTransport()
    one = machine(tmp_path, server)
    key = BLAKE3.of_bytes(b"key")
    server.results[key] = data
    assert one.cache.find(key, one.store) is None
    assert misses(one) == {MissReason.INVALID: 1}


@pytest.mark.parametrize("signed", [False, True])
def test_a_result_with_any_byte_changed_is_a_miss(tmp_path: Path, signed: bool) -> None:
    """Whatever reads it needs no key for that. The fields that no digest names are paths, bits, and metadata."""
    server = MemoryTransport()
    signatures = Signatures(signing_key=private_key(1)) if signed else Signatures()
    one = machine(tmp_path / "a", server, hooks={"sign": signatures.sign})
    sent = made(one.store, 1, sizes=(10, 20_000), below=(7,))
    files = [dataclasses.replace(file, is_executable=True) for file in sent.result.output_files]
    metadata = ExecutedActionMetadata(
        worker="a worker", auxiliary_metadata=(AnyMessage(type_url="type.mlcbuild.dev/KeyBreakdown", value=b"b"),)
    )
    sent.result = dataclasses.replace(sent.result, output_files=tuple(files), execution_metadata=metadata)
    one.send(sent)
    one.cache.finish()
    whole = server.results[sent.key]
    other = machine(tmp_path / "b", server)
    expected = other.cache.find(sent.key, other.store)
    assert expected is not None
    for position in range(len(whole)):
        for mask in (0xFF, 1 << position % 8):
            changed = bytearray(whole)
            changed[position] ^= mask
            server.results[sent.key] = bytes(changed)
            found = other.cache.find(sent.key, other.store)
            # A flag that is written as 3 is the flag.
            assert found is None or ActionResult.decode(bytes(changed)) == ActionResult.decode(whole), position
    server.results[sent.key] = whole
    assert other.cache.find(sent.key, other.store) == expected


def test_a_result_under_another_key_is_a_miss(tmp_path: Path) -> None:
    server = MemoryTransport()
    first, second = filled(tmp_path / "a", server, 1, 2)
    server.results[first.key], server.results[second.key] = server.results[second.key], server.results[first.key]
    one = machine(tmp_path / "b", server)
    assert not one.takes(first)
    assert misses(one) == {MissReason.INVALID: 1}
    one.send(made(one.store, 1))
    one.cache.finish()
    assert machine(tmp_path / "c", server).takes(first)


def test_a_tree_that_has_gone_makes_no_hit(tmp_path: Path, server: MemoryTransport) -> None:
    (sent,) = filled(tmp_path / "a", server)
    del server.blobs[sent.result.output_directories[0].tree_digest]
    one = machine(tmp_path / "b", server)
    assert one.cache.find(sent.key, one.store) is None
    assert misses(one) == {MissReason.INCOMPLETE: 1}


def test_a_result_whose_blobs_went_is_written_over_once_it_was_made_again(tmp_path: Path) -> None:
    server = MemoryTransport()
    (sent,) = filled(tmp_path / "a", server)
    one = machine(tmp_path / "b", server)
    del server.blobs[sent.result.output_files[1].digest]
    assert not one.takes(sent)
    again = made(one.store, 1)
    again.result = dataclasses.replace(again.result, stdout_raw=b"made again")
    one.send(again)
    one.cache.finish()
    assert ActionResult.decode(server.results[sent.key]).stdout_raw == b"made again"
