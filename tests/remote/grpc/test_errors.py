"""What comes of a REAPI server's errors, wrong answers and silence."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from mlcbuild.cache import wire
from mlcbuild.cache.digest import Digest
from mlcbuild.cache.remote.grpc import connect
from mlcbuild.cache.remote.grpc.transport import GrpcTransport
from mlcbuild.cache.remote.settings import Deadlines, ServerSettings
from mlcbuild.cache.remote.transport import ErrorKind, TransportError
from tests.remote import grpc_server
from tests.remote.grpc.calls import IMPATIENT, KEY, LARGE, SHA256, SMALL, calls, error_of, stored
from tests.remote.grpc_server import Server, answering, ending, holding
from tests.remote.moving import downloaded, uploaded

# Errors


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("CANCELLED", ErrorKind.TRANSIENT),
        ("UNKNOWN", ErrorKind.TRANSIENT),
        ("INVALID_ARGUMENT", ErrorKind.UNUSABLE),
        ("DEADLINE_EXCEEDED", ErrorKind.TRANSIENT),
        ("PERMISSION_DENIED", ErrorKind.DENIED),
        ("RESOURCE_EXHAUSTED", ErrorKind.TRANSIENT),
        ("FAILED_PRECONDITION", ErrorKind.UNUSABLE),
        ("ABORTED", ErrorKind.TRANSIENT),
        ("OUT_OF_RANGE", ErrorKind.UNUSABLE),
        ("UNIMPLEMENTED", ErrorKind.UNUSABLE),
        ("INTERNAL", ErrorKind.TRANSIENT),
        ("UNAVAILABLE", ErrorKind.TRANSIENT),
        ("DATA_LOSS", ErrorKind.TRANSIENT),
        ("UNAUTHENTICATED", ErrorKind.DENIED),
    ],
)
def test_a_status_says_what_helps(
    server: Server, remote: GrpcTransport, tmp_path: Path, code: str, expected: ErrorKind
) -> None:
    server.faults.append(ending(grpc.StatusCode[code], "because"))
    for call in calls(remote, tmp_path):
        error = error_of(call)
        assert error.kind is expected
        assert server.address in error.message
        assert code in error.message or "no answer in time" in error.message


def test_absence_alone_is_no_error(server: Server, remote: GrpcTransport, tmp_path: Path) -> None:
    server.faults.append(ending(grpc.StatusCode.NOT_FOUND))
    assert downloaded(remote, SHA256.of_bytes(LARGE)) is None
    assert remote.read_result(KEY) is None
    assert error_of(lambda: uploaded(remote, LARGE, tmp_path)).kind is ErrorKind.TRANSIENT


def test_the_time_that_a_server_asks_to_wait_is_told(server: Server, remote: GrpcTransport) -> None:
    delay = wire.integer_field(1, 2) + wire.integer_field(2, 500_000_000)
    detail = wire.text_field(1, "type.googleapis.com/google.rpc.RetryInfo")
    detail += wire.bytes_field(2, wire.bytes_field(1, delay))
    status = wire.integer_field(1, 8) + wire.text_field(2, "slowly") + wire.bytes_field(3, detail)
    server.faults.append(
        ending(grpc.StatusCode.RESOURCE_EXHAUSTED, "slowly", trailing=(("grpc-status-details-bin", status),))
    )
    assert error_of(lambda: remote.read_result(KEY)).retry_after == 2.5
    server.faults[:] = [
        ending(grpc.StatusCode.UNAVAILABLE, "nonsense", trailing=(("grpc-status-details-bin", b"\xff\xff"),))
    ]
    assert error_of(lambda: remote.read_result(KEY)).retry_after == 0


def test_one_failure_within_a_batch_is_told_after_what_came(server: Server, remote: GrpcTransport) -> None:
    good, bad, forgotten = (stored(server, b"%d" % number) for number in range(3))

    def status_of(code: int) -> grpc_server.Fault:
        def fault(method: str, request: bytes, context: Any) -> bytes | None:
            if method != "BatchReadBlobs":
                return None
            asked = wire.all_bytes(wire.parse(request), 2)
            return wire.bytes_field(1, wire.bytes_field(1, asked[0]) + wire.bytes_field(3, b"\x08%c" % code)) + (
                wire.bytes_field(1, wire.bytes_field(1, asked[1]) + wire.bytes_field(2, b"0"))
            )

        return fault

    for code, expected in ((8, ErrorKind.TRANSIENT), (7, ErrorKind.DENIED), (77, ErrorKind.TRANSIENT)):
        server.faults[:] = [status_of(code)]
        came: list[Digest] = []
        error = error_of(came.extend, (digest for digest, _ in remote.download_many([bad, good])))
        assert came == [good]
        assert error.kind is expected
        assert bad.hash in error.message
    server.faults[:] = [status_of(5)]
    assert "no answer for" in error_of(lambda: dict(remote.download_many([bad, good, forgotten]))).message


def test_a_blob_of_another_length_is_never_taken_for_it(server: Server, remote: GrpcTransport) -> None:
    for content in (SMALL, LARGE):
        digest = SHA256.of_bytes(content)
        for other in (content[:-1], content + b"x"):
            server.blobs[str(digest)] = other
            received: list[bytes] = []
            assert error_of(remote.download, digest, received.append).kind is ErrorKind.ITEM
            assert sum(map(len, received)) <= digest.size_bytes


def test_an_upload_that_was_not_stored_whole_is_an_error(server: Server, remote: GrpcTransport, tmp_path: Path) -> None:
    server.faults.append(answering(b"\x08\x05", only="Write"))
    error = error_of(lambda: uploaded(remote, LARGE, tmp_path))
    assert error.kind is ErrorKind.TRANSIENT
    assert "5 bytes were stored" in error.message


def test_answers_that_are_no_messages_are_unusable(server: Server, remote: GrpcTransport, tmp_path: Path) -> None:
    server.faults.append(answering(b"\x0f"))
    for call in calls(remote, tmp_path)[:5]:
        assert error_of(call).kind is ErrorKind.UNUSABLE
    assert error_of(lambda: connect(server.address, SHA256)).kind is ErrorKind.UNUSABLE


def test_a_server_that_stalls_is_left_in_time(server: Server, tmp_path: Path) -> None:
    remote = connect(server.address, SHA256, IMPATIENT)
    released = threading.Event()
    server.faults.append(holding(released))
    for call in calls(remote, tmp_path):
        start = time.monotonic()
        error = error_of(call)
        assert time.monotonic() - start < 4
        assert error.kind is ErrorKind.TRANSIENT
        assert "no answer in time" in error.message
    released.set()
    remote.close()


def test_a_stream_that_stops_is_left_long_before_its_deadline(server: Server) -> None:
    settings = ServerSettings(deadlines=Deadlines(idle=0.4, total=60))
    remote = connect(server.address, SHA256, settings)
    digest = stored(server, LARGE)
    released = threading.Event()
    pieces: list[bytes] = []
    server.after_piece = lambda: released.wait(10)
    start = time.monotonic()
    error = error_of(remote.download, digest, pieces.append)
    assert time.monotonic() - start < 4
    assert error.kind is ErrorKind.TRANSIENT
    assert "no answer in time" in error.message
    assert pieces == [LARGE[:100_000]]
    released.set()
    assert downloaded(remote, digest) == LARGE
    remote.close()


def test_a_slow_sink_is_not_the_servers_silence(server: Server) -> None:
    remote = connect(server.address, SHA256, ServerSettings(deadlines=Deadlines(idle=0.2, total=60)))
    digest = stored(server, LARGE)
    received: list[bytes] = []

    def slow(piece: bytes) -> None:
        if len(received) in (3, 7):
            time.sleep(0.6)
        received.append(piece)

    assert remote.download(digest, slow)
    assert b"".join(received) == LARGE
    remote.close()


def test_what_the_sink_raises_is_passed_on(server: Server, remote: GrpcTransport) -> None:
    def full(piece: bytes) -> None:
        raise OSError("no space left")

    for content in (SMALL, LARGE):
        digest = stored(server, content)
        with pytest.raises(OSError, match="no space left"):
            remote.download(digest, full)
        assert downloaded(remote, digest) == content


def test_a_file_that_is_not_the_blob_is_an_error_and_stores_nothing(
    server: Server, remote: GrpcTransport, tmp_path: Path
) -> None:
    for content in (SMALL, LARGE):
        digest = SHA256.of_bytes(content)
        short = tmp_path / "short"
        short.write_bytes(content[:-1])
        assert "ends 1 bytes before" in error_of(remote.upload, digest, short).message
        assert "cannot be read" in error_of(remote.upload, digest, tmp_path / "nothing").message
        assert remote.missing([digest]) == (digest,)


def test_a_server_that_has_gone_is_transient_and_found_again(tmp_path: Path) -> None:
    with grpc_server.running() as server:
        remote = connect(server.address, SHA256)
    for call in calls(remote, tmp_path):
        assert error_of(call).kind is ErrorKind.TRANSIENT
    assert error_of(connect, server.address, SHA256).kind is ErrorKind.TRANSIENT
    with grpc_server.running(port=int(server.address.split(":")[-1].split("/")[0])):
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with contextlib.suppress(TransportError):
                assert remote.missing([KEY]) == (KEY,)
                break
            time.sleep(0.05)
        else:
            pytest.fail("the server was not found again")
    remote.close()


def test_nothing_goes_out_of_a_closed_transport(server: Server, remote: GrpcTransport, tmp_path: Path) -> None:
    remote.close()
    for call in calls(remote, tmp_path):
        error = error_of(call)
        assert error.kind is ErrorKind.UNUSABLE
        assert "closed" in error.message
    assert not server.log


def test_closing_ends_calls_that_are_under_way(server: Server, tmp_path: Path) -> None:
    remote = connect(server.address, SHA256)
    released, waiting = threading.Event(), threading.Barrier(8)
    problems: list[TransportError] = []

    def work(call: Callable[[], object]) -> None:
        try:
            call()
        except TransportError as error:
            problems.append(error)

    server.faults.append(holding(released, waiting))
    threads = [threading.Thread(target=work, args=(call,)) for call in calls(remote, tmp_path)]
    for thread in threads:
        thread.start()
    waiting.wait(10)
    remote.close()
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)
    assert [error.kind for error in problems] == [ErrorKind.UNUSABLE] * 7
    released.set()
