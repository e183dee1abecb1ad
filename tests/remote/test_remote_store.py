"""The layer over transports: right bytes or none, blobs before results, failures told once and never raised."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult, AnyMessage, ExecutedActionMetadata, OutputFile, OutputSymlink
from mlcbuild.cache.remote.counters import MissReason
from mlcbuild.cache.remote.policy import RemotePolicy, RemoteRole, Upload
from mlcbuild.cache.remote.remote_store import RemoteStore
from mlcbuild.cache.remote.result_checksum import with_checksum
from mlcbuild.cache.remote.results import INLINE_BYTES, INLINE_BYTES_A_RESULT
from mlcbuild.cache.remote.retrying import RetryPolicy
from mlcbuild.cache.remote.signing import Signatures
from mlcbuild.cache.remote.transport import ErrorKind, TransportError
from mlcbuild.errors import CacheError
from tests.remote.cache_world import Machine, Made, machine, made, policy
from tests.remote.memory_transport import BLAKE3, BatchingMemoryTransport, MemoryTransport, flipped, transient
from tests.remote.test_signing import private_key


def waiting_for(gate: threading.Event) -> Callable[[str], None]:
    """Calls that wait until the gate opens, and do not fail."""

    def wait(_method: str) -> None:
        assert gate.wait(30)

    return wait


@pytest.fixture(params=[MemoryTransport, BatchingMemoryTransport])
def server(request: pytest.FixtureRequest) -> MemoryTransport:
    return request.param()


def filled(folder: Path, server: MemoryTransport, *numbers: int) -> list[Made]:
    """Results that one machine has sent."""
    one = machine(folder, server)
    sent = [made(one.store, number) for number in numbers or (1,)]
    for each in sent:
        one.send(each)
    one.cache.finish()
    assert one.told == []
    server.calls.clear()
    return sent


def misses(one: Machine) -> dict[MissReason, int]:
    return {reason: count for reason, count in one.cache.counters.misses if count}


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


def test_reasons_of_misses_are_told_apart(tmp_path: Path, server: MemoryTransport) -> None:
    (sent,) = filled(tmp_path / "a", server)
    one = machine(tmp_path / "b", server, asks_for_blobs=True)
    one.cache.find(BLAKE3.of_bytes(b"nobody's"), one.store)
    del server.blobs[sent.result.output_files[1].digest]
    one.cache.find(sent.key, one.store)
    assert misses(one) == {MissReason.ABSENT: 1, MissReason.INCOMPLETE: 1}
    server.fail = lambda _method: transient("the connection is refused")
    one.cache.find(sent.key, one.store)
    server.fail = lambda _method: TransportError("no answer in time", kind=ErrorKind.TRANSIENT, is_timeout=True)
    one.cache.find(sent.key, one.store)
    server.fail = lambda _method: TransportError("no credentials", kind=ErrorKind.DENIED)
    one.cache.find(sent.key, one.store)
    one.cache.find(sent.key, one.store)
    assert misses(one) == {
        MissReason.ABSENT: 1,
        MissReason.INCOMPLETE: 1,
        MissReason.FAILED: 1,
        MissReason.TIMED_OUT: 1,
        MissReason.DENIED: 1,
        MissReason.OFF: 1,
    }


ENDS = {
    MissReason.FAILED: transient("the connection is refused"),
    MissReason.TIMED_OUT: TransportError("no answer in time", kind=ErrorKind.TRANSIENT, is_timeout=True),
    MissReason.DENIED: TransportError("no credentials", kind=ErrorKind.DENIED),
}


@pytest.mark.parametrize("reason", ENDS)
@pytest.mark.parametrize("methods", [("read_result",), ("download", "download_many"), ("missing",)])
def test_whatever_ends_a_lookup_is_counted_as_what_it_was(
    tmp_path: Path, server: MemoryTransport, methods: tuple[str, ...], reason: MissReason
) -> None:
    """The result itself, its Trees, and the question for its blobs."""
    (sent,) = filled(tmp_path / "a", server)
    one = machine(tmp_path / "b", server, asks_for_blobs=True)
    server.fail = lambda method: ENDS[reason] if method in methods else None
    assert one.cache.find(sent.key, one.store) is None
    assert misses(one) == {reason: 1}


def test_an_error_that_is_raised_counts_as_a_miss_too(tmp_path: Path) -> None:
    def check(_key: Digest, _result: ActionResult) -> str:
        raise CacheError("the signing key is not readable")

    server = MemoryTransport()
    (sent,) = filled(tmp_path / "a", server)
    one = machine(tmp_path / "b", server, hooks={"check": check})
    with pytest.raises(CacheError):
        one.cache.find(sent.key, one.store)
    assert misses(one) == {MissReason.FAILED: 1}


def test_a_lookup_without_an_answer_at_the_end_is_a_miss_that_timed_out(tmp_path: Path) -> None:
    gate = threading.Event()
    server = MemoryTransport(fail=waiting_for(gate))
    one = machine(tmp_path, server)
    asking = threading.Thread(target=lambda: one.cache.find(BLAKE3.of_bytes(b"key"), one.store))
    asking.start()
    wait_for(lambda: server.calls["read_result"])
    one.cache.finish()
    assert misses(one) == {MissReason.TIMED_OUT: 1}
    gate.set()
    asking.join()
    assert misses(one) == {MissReason.TIMED_OUT: 1}


def test_the_last_failure_is_told_at_the_end_if_no_lookup_had_given_up(tmp_path: Path) -> None:
    """A build may end while its lookups still wait to try again."""
    server = MemoryTransport(fail=lambda _method: transient("the connection is refused"))
    one = machine(tmp_path, server)
    one = dataclasses.replace(one, cache=patient(server, one))
    asking = threading.Thread(target=lambda: one.cache.find(BLAKE3.of_bytes(b"key"), one.store))
    asking.start()
    wait_for(lambda: server.calls["read_result"])
    assert one.told == []
    one.cache.finish()
    asking.join()
    (told,) = one.told
    assert "the connection is refused" in told
    assert server.address in told
    assert misses(one) == {MissReason.FAILED: 1}


def test_a_failure_that_a_retry_overcame_is_not_told(tmp_path: Path, server: MemoryTransport) -> None:
    (sent,) = filled(tmp_path / "a", server)
    failing = iter([True, False] * 100)
    server.fail = lambda _method: transient("slow down") if next(failing) else None
    one = machine(tmp_path / "b", server)
    assert one.takes(sent)
    one.cache.finish()
    assert one.told == []


def patient(server: MemoryTransport, one: Machine) -> RemoteStore:
    """A cache with a real clock, whose pauses only its end cuts short."""
    retries = RetryPolicy(attempts=5, first=20.0, longest=60.0, total=600.0)
    cache = RemoteStore([server], policy(retries=retries), seed=3)
    cache.start(one.told.append)
    return cache


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


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


# Errors


def test_transient_errors_are_survived(tmp_path: Path, server: MemoryTransport) -> None:
    failing: Iterator[bool] = iter([True, False] * 100)
    server.fail = lambda _method: transient("slow down", retry_after=7.0) if next(failing) else None
    one = machine(tmp_path / "a", server)
    sent = made(one.store, 1)
    one.send(sent)
    one.cache.finish()
    assert one.cache.counters.uploads_dropped == 0
    assert min(one.clock.slept) >= 7.0
    assert machine(tmp_path / "b", server).takes(sent)


def test_refused_uploads_end_uploads_alone(tmp_path: Path, server: MemoryTransport) -> None:
    (sent,) = filled(tmp_path / "a", server)
    refused = TransportError("403", kind=ErrorKind.DENIED)
    server.fail = lambda method: refused if method in ("upload", "upload_many", "write_result") else None
    one = machine(tmp_path / "b", server)
    for number in range(2, 6):
        one.send(made(one.store, number))
    one.cache.finish()
    (told,) = one.told
    assert "uploads are disabled" in told
    assert server.address in told
    assert one.cache.counters.uploads_dropped == 4
    assert one.takes(sent)


@pytest.mark.parametrize("kind", [ErrorKind.DENIED, ErrorKind.UNUSABLE])
def test_a_server_that_refuses_reading_or_makes_no_sense_is_left_alone(tmp_path: Path, kind: ErrorKind) -> None:
    server = MemoryTransport(fail=lambda _method: TransportError("no", kind=kind))
    one = machine(tmp_path, server)
    for number in range(5):
        assert not one.takes(made(one.store, number))
        one.send(made(one.store, number))
    one.cache.finish()
    assert sum(server.calls.values()) == 1
    assert len(one.told) == 1
    assert one.cache.counters.uploads_dropped == 5


def test_a_server_that_keeps_failing_is_left_alone_and_tried_again(tmp_path: Path) -> None:
    server = MemoryTransport()
    (sent,) = filled(tmp_path / "a", server)
    server.fail = lambda _method: transient("no answer")
    one = machine(tmp_path / "b", server)
    for number in range(10):
        assert not one.takes(made(one.store, number))
    assert server.calls["read_result"] == 3 * 3  # three operations of three attempts each
    assert misses(one) == {MissReason.FAILED: 3, MissReason.OFF: 7}
    for _ in range(10):
        one.clock.now += 60.0
        assert not one.takes(sent)
        assert not one.takes(sent)
    assert server.calls["read_result"] == 3 * 3 + 10  # one attempt each time
    server.fail = lambda _method: None
    assert not one.takes(sent)
    one.clock.now += 60.0
    assert one.takes(sent)
    assert one.takes(sent)
    assert len(one.told) == 3  # the first failure, that it is left alone, and that it answers again
    assert "tries it again later" in one.told[1]
    assert "answers again" in one.told[2]


@pytest.mark.parametrize("kind", [ErrorKind.ITEM, ErrorKind.DENIED])
def test_a_trial_that_ends_otherwise_leaves_nothing_half_open(
    tmp_path: Path, server: MemoryTransport, kind: ErrorKind
) -> None:
    (sent,) = filled(tmp_path / "a", server)
    server.fail = lambda _method: transient("no answer")
    one = machine(tmp_path / "b", server)
    for number in range(4):
        one.takes(made(one.store, number))
    one.clock.now += 60.0
    server.fail = lambda _method: TransportError("no", kind=kind)
    assert not one.takes(sent)
    server.fail = lambda _method: None
    assert one.takes(sent) == (kind is ErrorKind.ITEM)


def test_what_was_not_sent_is_sent_when_the_server_answers_again(tmp_path: Path, server: MemoryTransport) -> None:
    server.fail = lambda _method: transient("the server restarts")
    one = machine(tmp_path / "a", server)
    sent = [made(one.store, number) for number in range(12)]
    for each in sent[:11]:
        one.send(each)
        wait_for(lambda: not one.cache.sending)
    assert one.cache.counters.uploads_dropped == 0
    server.fail = lambda _method: None
    one.clock.now += 60.0
    one.send(sent[11])
    wait_for(lambda: len(server.results) == 12)
    one.cache.finish()
    counters = one.cache.counters
    assert (counters.results_uploaded, counters.uploads_dropped) == (12, 0)
    other = machine(tmp_path / "b", server)
    assert all(other.takes(each) for each in sent)


def test_what_was_not_sent_is_sent_at_the_end(tmp_path: Path, server: MemoryTransport) -> None:
    """Also if the pause before the next trial is not over, and nothing else has asked the server meanwhile."""
    server.fail = lambda _method: transient("the server restarts")
    one = machine(tmp_path / "a", server)
    sent = [made(one.store, number) for number in range(12)]
    for each in sent:
        one.send(each)
        wait_for(lambda: not one.cache.sending)
    server.fail = lambda _method: None
    one.cache.finish()
    assert (one.cache.counters.results_uploaded, one.cache.counters.uploads_dropped) == (12, 0)


def test_a_server_that_does_not_come_back_costs_the_end_one_request(tmp_path: Path) -> None:
    server = MemoryTransport(fail=lambda _method: transient("no answer"))
    one = machine(tmp_path / "a", server)
    for number in range(12):
        one.send(made(one.store, number))
        wait_for(lambda: not one.cache.sending)
    before = sum(server.calls.values())
    one.cache.finish()
    assert sum(server.calls.values()) <= before + 1 + 4  # a trial; its blobs are sent by as many threads
    assert one.cache.counters.uploads_dropped == 12
    assert "12 results not sent" in one.told[-1]
    assert "mlcbuild cache push" in one.told[-1]


def test_a_result_that_alone_fails_holds_up_no_other(tmp_path: Path) -> None:
    server = MemoryTransport()
    one = machine(tmp_path / "a", server)
    bad, good = made(one.store, 1), made(one.store, 2)
    server.fail_item = lambda key: transient("no answer") if key == bad.key else None
    one.send(bad)
    wait_for(lambda: not one.cache.sending)
    one.send(good)
    one.cache.finish()
    assert set(server.results) == {good.key}
    assert one.cache.counters.uploads_dropped == 1


# Several servers


def test_all_are_read_in_order_and_the_first_is_written(tmp_path: Path) -> None:
    trusted, own = MemoryTransport(address="memory://trusted"), MemoryTransport(address="memory://own")
    (sent,) = filled(tmp_path / "a", trusted)
    one = machine(tmp_path / "b", own, trusted)
    assert one.takes(sent)
    one.send(made(one.store, 2))
    one.cache.finish()
    assert (len(trusted.results), len(own.results)) == (1, 1)
    (new,) = own.results
    assert not machine(tmp_path / "c", trusted).takes(made(one.store, 2))
    reader = machine(tmp_path / "d", own, trusted)
    assert reader.takes(made(one.store, 2))
    assert new == made(one.store, 2).key


def test_one_that_is_off_hides_no_other(tmp_path: Path) -> None:
    broken, good = MemoryTransport(fail=lambda _method: transient("no")), MemoryTransport()
    sent = filled(tmp_path / "a", good, *range(1, 7))
    one = machine(tmp_path / "b", broken, good)
    assert all(one.takes(each) for each in sent)


# Uploads in the background


def test_sending_waits_for_nothing_and_the_end_waits_for_it_so_long(tmp_path: Path) -> None:
    gate = threading.Event()
    server = MemoryTransport(fail=waiting_for(gate))
    one = machine(tmp_path, server, drain_seconds=0.3)
    began = time.monotonic()
    for number in range(20):
        one.send(made(one.store, number))
    one.cache.finish()
    assert time.monotonic() - began < 20
    gate.set()
    assert one.cache.counters.uploads_dropped == 20
    assert "20 results not sent" in one.told[-1]


def test_what_is_abandoned_is_dropped_at_once(tmp_path: Path) -> None:
    gate = threading.Event()
    server = MemoryTransport(fail=waiting_for(gate))
    one = machine(tmp_path, server, drain_seconds=1000.0)
    one.send(made(one.store, 1))
    threading.Timer(0.2, one.cache.abandon).start()
    one.cache.finish()
    gate.set()
    assert one.cache.counters.uploads_dropped == 1
    one.send(made(one.store, 2))
    assert one.cache.counters.uploads_dropped == 2


def test_a_blob_that_left_the_store_drops_its_result_alone(tmp_path: Path) -> None:
    server = MemoryTransport()
    one = machine(tmp_path / "a", server)
    broken, good = made(one.store, 1), made(one.store, 2)
    one.store.path_of(broken.outputs[1]).unlink()
    one.send(broken)
    one.send(good)
    one.cache.finish()
    assert set(server.results) == {good.key}
    assert one.cache.counters.uploads_dropped == 1
    (told,) = one.told
    assert str(broken.outputs[1]) in told


def test_what_is_there_is_not_sent_again(tmp_path: Path) -> None:
    server = BatchingMemoryTransport()
    filled(tmp_path / "a", server)
    one = machine(tmp_path / "b", server)
    one.send(made(one.store, 1))
    one.cache.finish()
    assert server.calls["missing"] == 1
    assert server.calls["upload"] + server.calls["upload_many"] == 0
    assert one.cache.counters.bytes_uploaded == 0


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
