"""What a server has damaged: found by who reads, replaced by who may write, and no concern of anybody after that."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.remote.counters import MissReason
from mlcbuild.cache.remote.policy import RemoteRole
from mlcbuild.cache.remote.transport import ErrorKind, TransportError
from mlcbuild.engine.build_events import ActionFinished, ActionStatus
from tests.remote import http_server
from tests.remote.cache_world import Machine, machine, made
from tests.remote.fault_proxy import Fault, FaultProxy, Request
from tests.remote.http_server import Cache
from tests.remote.memory_transport import BatchingMemoryTransport, MemoryTransport, flipped
from tests.remote.s3_world import FUNCTION, MIB, Taken, World
from tests.remote.test_remote_builds import LARGE, User

KEY = FUNCTION.of_bytes(b"an action")
WHOLE = b"".join(f"{number}\n".encode() + b"7" * (9000 * number) for number in range(5))


@pytest.fixture(params=[MemoryTransport, BatchingMemoryTransport])
def server(request: pytest.FixtureRequest) -> MemoryTransport:
    transport: MemoryTransport = request.param()
    return transport


def wait_for(one: Machine) -> None:
    while one.cache.sending:
        time.sleep(0.01)


def damage(world: World, digest: Digest, data: bytes) -> None:
    """Put other bytes into the place of a blob."""
    key = f"{world.prefix}/v1/blake3/cas/{digest.hash[:2]}/{digest.hash}"
    world.server.client().put_object(Bucket=world.bucket, Key=key, Body=data)


# Whole builds over a real server


@pytest.mark.parametrize(
    ("blob", "bytes_there"),
    [
        pytest.param(WHOLE, flipped(WHOLE), id="a flipped bit"),
        pytest.param(WHOLE, WHOLE[:-1], id="the last byte missing"),
        pytest.param(b"7" * LARGE, bytes(LARGE), id="a large one of zeros"),
    ],
)
def test_a_writer_that_meets_a_damaged_blob_heals_it_and_the_next_reader_notices_nothing(
    tmp_path: Path, world: World, blob: bytes, bytes_there: bytes
) -> None:
    first = User(tmp_path / "first", world.transport())
    first.build()
    digest = FUNCTION.of_bytes(blob)
    damage(world, digest, bytes_there)
    # With the parts gone, whoever builds has to read the large blob too.
    for number in range(5) if len(blob) == LARGE else ():
        forget(world, first, f"part{number}")
    second = User(tmp_path / "second", world.transport())
    assert ActionStatus.EXECUTED_LOCAL in second.build()
    assert second.remote.counters.blobs_wrong == 2
    (told,) = second.notices
    assert str(digest) in told
    third = User(tmp_path / "third", world.transport(), role=RemoteRole.READ)
    assert third.build() == {ActionStatus.REMOTE_HIT}
    assert third.notices == []
    taken = Taken()
    assert world.transport().download(digest, taken)
    assert taken.data == blob


def forget(world: World, user: User, action: str) -> None:
    events = user.workspace.events
    (key,) = {event.key for event in events if isinstance(event, ActionFinished) and event.identifier == action}
    name = f"{world.prefix}/v1/blake3/ac/{key[:2]}/{key}"
    world.server.client().delete_object(Bucket=world.bucket, Key=name)


# The layer over transports


def test_readers_leave_damage_alone(tmp_path: Path, server: MemoryTransport) -> None:
    one = machine(tmp_path / "a", server)
    sent = made(one.store, 1)
    one.send(sent)
    one.cache.finish()
    victim = sent.outputs[1]
    server.blobs[victim] = wrong = flipped(server.blobs[victim])
    reader = machine(tmp_path / "b", server, role=RemoteRole.READ)
    assert not reader.takes(sent)
    reader.send(made(reader.store, 1))
    reader.cache.finish()
    assert server.blobs[victim] == wrong


@pytest.mark.parametrize("cut", [False, True])
def test_only_what_is_damaged_is_sent_again(tmp_path: Path, server: MemoryTransport, cut: bool) -> None:
    one = machine(tmp_path / "a", server)
    sizes = (500, 90_000, 100_000)
    sent = made(one.store, 1, sizes=sizes)
    one.send(sent)
    one.cache.finish()
    right = dict(server.blobs)
    victim = sent.outputs[1]
    server.blobs[victim] = server.blobs[victim][:-1] if cut else flipped(server.blobs[victim])
    writer = machine(tmp_path / "b", server)
    assert not writer.takes(sent)
    writer.send(made(writer.store, 1, sizes=sizes))
    writer.cache.finish()
    assert server.blobs == right
    assert writer.cache.counters.results_uploaded == 1
    assert writer.cache.counters.bytes_uploaded < 90_000 + 20_000
    reader = machine(tmp_path / "c", server, role=RemoteRole.READ)
    assert reader.takes(sent)
    assert reader.told == []


def test_recache_replaces_blobs_that_nobody_has_looked_at(tmp_path: Path, server: MemoryTransport) -> None:
    one = machine(tmp_path / "a", server)
    sent = made(one.store, 1)
    one.send(sent)
    one.cache.finish()
    right = dict(server.blobs)
    for digest in sent.outputs:
        server.blobs[digest] = flipped(server.blobs[digest])
    plain = machine(tmp_path / "a", server)
    plain.send(sent)
    plain.cache.finish()
    assert server.blobs != right
    recaching = machine(tmp_path / "a", server, replaces=True)
    recaching.send(sent)
    wait_for(recaching)
    recaching.send(sent)  # Once in a build is enough.
    recaching.cache.finish()
    assert server.blobs == right
    assert recaching.cache.counters.blobs_uploaded == sum(1 for digest in right if digest.size_bytes)


def test_a_server_that_replaces_nothing_is_told_once(tmp_path: Path, server: MemoryTransport) -> None:
    one = machine(tmp_path / "a", server)
    several = [made(one.store, number) for number in range(3)]
    for sent in several:
        one.send(sent)
    one.cache.finish()
    server.replaces = False
    for sent in several:
        server.blobs[sent.outputs[1]] = flipped(server.blobs[sent.outputs[1]])
    writer = machine(tmp_path / "b", server)
    assert not any(map(writer.takes, several))
    writer.told.clear()
    for number in range(3):
        writer.send(made(writer.store, number))
    writer.cache.finish()
    (told,) = writer.told
    assert "although it was uploaded again: delete the blob there" in told


def test_one_result_that_cannot_be_used_leaves_the_server_in_use(tmp_path: Path, server: MemoryTransport) -> None:
    one = machine(tmp_path / "a", server)
    large, other = made(one.store, 1), made(one.store, 2)
    one.send(other)
    one.cache.finish()
    errors = [TransportError("70000000 bytes are no result", kind=ErrorKind.ITEM)] * 5
    server.fail = lambda method: errors.pop() if errors and method == "read_result" else None
    reader = machine(tmp_path / "b", server)
    for _ in range(5):
        assert not reader.takes(large)
    assert reader.takes(other)
    assert {reason: count for reason, count in reader.cache.counters.misses if count} == {MissReason.INVALID: 5}
    (told,) = reader.told
    assert "70000000 bytes are no result" in told


def test_one_blob_that_a_server_does_not_take_drops_its_result_alone(tmp_path: Path, server: MemoryTransport) -> None:
    refused = TransportError("more than the server takes", kind=ErrorKind.ITEM)
    one = machine(tmp_path / "a", server)
    large, other = made(one.store, 1, sizes=(90_000,)), made(one.store, 2)
    errors = [refused]
    server.fail = lambda method: errors.pop() if errors and method == "upload" else None
    one.send(large)
    wait_for(one)
    one.send(other)
    one.cache.finish()
    assert set(server.results) == {other.key}
    (told,) = one.told
    assert told == f"a result was not sent to {server.address}: more than the server takes"
    assert one.cache.counters.uploads_dropped == 1


# Transports


@pytest.mark.parametrize("size", [1000, 3 * MIB, 7 * MIB])
def test_a_bucket_keeps_a_blob_unless_it_is_replaced(world: World, size: int) -> None:
    transport = world.transport(multipart_bytes=6 * MIB, part_bytes=5 * MIB)
    path, digest = world.file(size)
    damage(world, digest, bytes(size))
    assert not transport.upload(digest, path)
    assert transport.upload(digest, path, replace=True)
    taken = Taken()
    assert transport.download(digest, taken)
    assert taken.data == path.read_bytes()
    assert world.unfinished() == 0


def replaces(request: Request) -> bool:
    """What a policy that demands `s3:if-none-match` refuses."""
    is_end = request.method == "PUT" or (request.method == "POST" and request.query.startswith("uploadId="))
    return is_end and "partNumber" not in request.query and "if-none-match" not in request.headers


@pytest.mark.parametrize("size", [1000, 7 * MIB])
def test_a_bucket_that_lets_nothing_be_replaced_refuses_that_object_alone(
    world: World, proxy: FaultProxy, size: int
) -> None:
    transport = world.transport(endpoint=proxy.endpoint, multipart_bytes=6 * MIB, part_bytes=5 * MIB)
    path, digest = world.file(size)
    proxy.faults.append(Fault(wanted=replaces, status=403, code="AccessDenied", times=-1))
    calls: list[Any] = [
        lambda: transport.upload(digest, path, replace=True),
        lambda: transport.write_result(KEY, b"result", replace=True),
    ]
    for call in calls:
        with pytest.raises(TransportError) as caught:
            call()
        assert caught.value.kind is ErrorKind.DENIED, "nothing is there, so it is no replacing that is refused"
    assert transport.upload(digest, path)
    assert transport.write_result(KEY, b"result")
    for call in calls:
        with pytest.raises(TransportError, match="may not be replaced") as caught:
            call()
        assert caught.value.kind is ErrorKind.ITEM
    assert world.unfinished() == 0


@pytest.mark.parametrize("status", [403, 405, 409])
def test_a_server_over_http_that_lets_nothing_be_replaced_refuses_that_one_alone(tmp_path: Path, status: int) -> None:
    with http_server.running() as cache:
        from mlcbuild.cache.remote import http

        remote = http.connect(cache.address, FUNCTION)
        path = tmp_path / "blob"
        path.write_bytes(b"x" * 2_000_000)
        digest = FUNCTION.of_file(path)
        wrong = bytes(2_000_000)
        name = next(iter(stored(cache, remote, digest, path)))
        cache.blobs[name] = wrong
        assert not remote.upload(digest, path)
        assert remote.upload(digest, path, replace=True)
        assert cache.blobs[name] == path.read_bytes()

        def never_twice(handler: http_server.Handler) -> bool:
            if handler.command != "PUT" or handler.path not in cache.blobs:
                return False
            handler.refuse(status)
            return True

        cache.faults.append(never_twice)
        with pytest.raises(TransportError, match="may not be replaced") as caught:
            remote.upload(digest, path, replace=True)
        assert caught.value.kind is ErrorKind.ITEM
        assert remote.write_result(KEY, b"one", replace=True)
        with pytest.raises(TransportError, match="may not be replaced"):
            remote.write_result(KEY, b"two", replace=True)
        remote.close()


def stored(cache: Cache, remote: Any, digest: Digest, path: Path) -> set[str]:
    before = set(cache.blobs)
    remote.upload(digest, path)
    return set(cache.blobs) - before
