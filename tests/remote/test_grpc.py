"""What a REAPI server is asked, and what comes of its answers and errors."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from mlcbuild.cache import wire
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote import batches
from mlcbuild.cache.remote.grpc import connect
from mlcbuild.cache.remote.grpc.transport import MOST_SENT_BYTES, GrpcTransport
from mlcbuild.cache.remote.settings import Deadlines, ServerSettings
from mlcbuild.cache.remote.transport import ErrorKind, TransportError
from tests.remote import grpc_server, http_server
from tests.remote.grpc_server import Server, answering, ending, holding

SHA256 = DigestFunction.SHA256
KEY = SHA256.of_bytes(b"an action")
SMALL, LARGE = b"small", os.urandom(3 << 20)
IMPATIENT = ServerSettings(deadlines=Deadlines(connect=2, idle=0.4, total=0.8, bytes_per_second=1 << 20))
TOKEN = "token-12345"


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[Server]:
    with grpc_server.running() as server:
        yield server


@pytest.fixture
def remote(server: Server) -> Iterator[GrpcTransport]:
    transport = connect(server.address, SHA256)
    server.log.clear()
    yield transport
    transport.close()


def stored(server: Server, content: bytes) -> Digest:
    digest = server.function.of_bytes(content)
    server.blobs[str(digest)] = content
    return digest


def downloaded(remote: GrpcTransport, digest: Digest) -> bytes | None:
    received: list[bytes] = []
    return b"".join(received) if remote.download(digest, received.append) else None


def uploaded(remote: GrpcTransport, content: bytes, folder: Path) -> bool:
    digest = remote.function.of_bytes(content)
    path = folder / digest.hash  # two threads may be at it
    path.write_bytes(content)
    return remote.upload(digest, path)


def error_of(action: Callable[..., object], *arguments: object) -> TransportError:
    with pytest.raises(TransportError) as caught:
        action(*arguments)
    assert TOKEN not in str(caught.value)
    return caught.value


def calls(remote: GrpcTransport, folder: Path) -> list[Callable[[], object]]:
    """One call of each method that the server is asked by."""
    return [
        lambda: remote.missing([KEY]),
        lambda: downloaded(remote, SHA256.of_bytes(SMALL)),
        lambda: downloaded(remote, SHA256.of_bytes(LARGE)),
        lambda: uploaded(remote, SMALL, folder),
        lambda: uploaded(remote, LARGE, folder),
        lambda: remote.read_result(KEY),
        lambda: remote.write_result(KEY, b"", replace=True),
    ]


# Names, functions and batches


@pytest.mark.parametrize("function", list(DigestFunction))
def test_blobs_and_results_come_back_as_they_went(function: DigestFunction, tmp_path: Path) -> None:
    with grpc_server.running(function) as server:
        remote = connect(server.address, function)
        for content in (b"", SMALL, LARGE):
            digest = function.of_bytes(content)
            assert downloaded(remote, digest) == (None if content else b"")
            assert uploaded(remote, content, tmp_path) == bool(content)
            assert downloaded(remote, digest) == content
            assert remote.missing([digest, digest, KEY]) == (KEY,)
        assert remote.read_result(KEY) is None
        assert remote.write_result(KEY, b"\x20\x00")
        assert not remote.write_result(KEY, b"")
        assert remote.read_result(KEY) == b"\x20\x00"
        remote.close()
        assert remote.address == server.address


def test_blake3_is_named_in_resources_and_requests_and_sha256_is_not(tmp_path: Path) -> None:
    for function, segment, field in ((DigestFunction.BLAKE3, "blake3/", [9]), (SHA256, "", [])):
        with grpc_server.running(function) as server:
            remote = connect(server.address, function)
            digest = function.of_bytes(LARGE)
            uploaded(remote, LARGE, tmp_path)
            downloaded(remote, digest)
            uploaded(remote, SMALL, tmp_path)
            downloaded(remote, function.of_bytes(SMALL))
            remote.missing([digest])
            remote.read_result(KEY)
            remote.write_result(KEY, b"", replace=True)
            remote.close()
            write, read = server.names
            assert read == f"main/blobs/{segment}{digest}"
            assert write.startswith("main/uploads/")
            assert write.endswith(f"/blobs/{segment}{digest}")
            numbers = {
                "FindMissingBlobs": 3,
                "BatchUpdateBlobs": 5,
                "BatchReadBlobs": 4,
                "GetActionResult": 6,
                "UpdateActionResult": 5,
            }
            asked = {method: wire.parse(request) for method, request in server.log}
            assert {method: asked[method].get(number, []) for method, number in numbers.items()} == dict.fromkeys(
                numbers, field
            )


def test_questions_stay_below_the_limit_on_messages(server: Server, remote: GrpcTransport) -> None:
    there = {stored(server, b"%d" % number) for number in range(100)}
    digests = [SHA256.of_bytes(b"%d" % number) for number in range(60_000)]
    assert remote.missing(digests) == tuple(digest for digest in digests if digest not in there)
    assert len(server.log) == 2
    assert all(len(request) <= 4 << 20 for _, request in server.log)


@pytest.mark.parametrize("limit", [0, 300_000])
def test_batches_stay_below_the_limits(limit: int, tmp_path: Path) -> None:
    with grpc_server.running() as server:
        server.most_batched_bytes = limit
        remote = connect(server.address, SHA256)
        server.log.clear()
        contents = [os.urandom(90_000 + number) for number in range(100)]
        files = []
        for content in contents:
            path = tmp_path / SHA256.of_bytes(content).hash
            path.write_bytes(content)
            files.append((SHA256.of_bytes(content), path))
        batches.upload_many(remote, files)
        absent = SHA256.of_bytes(b"absent")
        answers = dict(batches.download_many(remote, [absent, *(digest for digest, _ in files)]))
        assert answers == {SHA256.of_bytes(content): content for content in contents} | {absent: None}
        requests = -(-sum(map(len, contents)) // MOST_SENT_BYTES) if not limit else 34
        assert len(server.log) == 2 * requests
        assert uploaded(remote, os.urandom(300_000), tmp_path)
        assert server.methods()[-1] == ("Write" if limit else "BatchUpdateBlobs")
        with pytest.raises(ValueError, match="larger than"):
            list(remote.download_many([SHA256.of_bytes(LARGE)]))
        remote.close()


def test_a_server_that_has_a_large_blob_says_so_before_its_end(
    server: Server, remote: GrpcTransport, tmp_path: Path
) -> None:
    content = os.urandom(40 << 20)
    assert uploaded(remote, content, tmp_path)
    server.answers_early = True
    assert not uploaded(remote, content, tmp_path)


@pytest.mark.parametrize("limit", [1000, 2 << 20])
def test_a_blob_that_is_too_large_for_the_server_is_not_sent(server: Server, tmp_path: Path, limit: int) -> None:
    server.most_blob_bytes = limit
    remote = connect(server.address, SHA256)
    error = error_of(lambda: uploaded(remote, os.urandom(limit + 1), tmp_path))
    assert error.kind is ErrorKind.ITEM
    assert f"the server accepts at most {limit} bytes" in error.message
    assert uploaded(remote, os.urandom(limit), tmp_path)
    assert not {"Write", "BatchUpdateBlobs"} & set(server.methods()[:-1])
    remote.close()


def test_a_message_that_is_too_large_says_nothing_of_the_rest(server: Server, remote: GrpcTransport) -> None:
    server.faults.append(ending(grpc.StatusCode.RESOURCE_EXHAUSTED, "received message larger than max (5 vs. 4)"))
    assert error_of(lambda: remote.write_result(KEY, b"x", replace=True)).kind is ErrorKind.ITEM


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


# Connecting


@pytest.mark.parametrize(
    ("offered", "ours", "advice"),
    [
        (SHA256, DigestFunction.BLAKE3, 'digest = "sha256"'),
        (DigestFunction.BLAKE3, SHA256, 'digest = "blake3"'),
    ],
)
def test_another_digest_function_is_an_error_with_advice(
    offered: DigestFunction, ours: DigestFunction, advice: str
) -> None:
    with grpc_server.running(offered) as server:
        error = error_of(lambda: connect(server.address, ours))
        assert error.kind is ErrorKind.UNUSABLE
        assert advice in str(error)
        assert ours.value in error.message


def test_a_wrong_instance_is_refused(server: Server) -> None:
    for address in (server.address.removesuffix("/main"), server.address + "/b"):
        error = error_of(connect, address, SHA256)
        assert error.kind is ErrorKind.DENIED
        assert "check the instance" in str(error)


@pytest.mark.parametrize(
    "address",
    [
        "http://host:1",
        "grpc://host",
        "grpc://:80",
        f"grpcs://me:{TOKEN}@host:443/main",
        f"grpc://host:80/main?token={TOKEN}",
        "grpc://host:80/a/blobs/b",
        "grpc://host:80/a//b",
        "grpc://host:80/a%0ab",
        "grpc://host:99999",
        "grpc://[::1/x",
    ],
)
def test_an_address_that_is_none_is_refused_without_showing_it(address: str) -> None:
    assert error_of(lambda: connect(address, SHA256)).kind is ErrorKind.DENIED


def test_headers_go_with_every_call_and_are_never_shown(server: Server, tmp_path: Path) -> None:
    settings = ServerSettings(headers=(("Authorization", f"Bearer {TOKEN}"), ("X-Team", "compilers")))
    remote = connect(server.address, SHA256, settings)
    for call in calls(remote, tmp_path):
        call()
    assert len(server.metadata) == 8
    for metadata in server.metadata:
        assert metadata["authorization"] == f"Bearer {TOKEN}"
        assert metadata["x-team"] == "compilers"
    server.faults.append(ending(grpc.StatusCode.UNAUTHENTICATED, f"the token {TOKEN} has expired"))
    for call in calls(remote, tmp_path):
        error = error_of(call)
        assert error.kind is ErrorKind.DENIED
        assert "the token … has expired" in error.message
    remote.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Self-signed for 127.0.0.1, with its key in the same file."""
    folder = tmp_path_factory.mktemp("tls")
    options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=cache"
    options += " -addext subjectAltName=IP:127.0.0.1 -keyout both.pem -out certificate.pem"
    subprocess.run(["openssl", "req", *options.split()], cwd=folder, check=True, capture_output=True)
    with (folder / "both.pem").open("ab") as both:
        both.write((folder / "certificate.pem").read_bytes())
    return folder / "both.pem"


def test_tls_with_a_certificate_that_is_trusted(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = certificate.with_name("certificate.pem")
    with grpc_server.running(certificate=certificate) as server:
        remote = connect(server.address, SHA256, ServerSettings(authorities=trusted))
        assert uploaded(remote, LARGE, tmp_path)
        assert downloaded(remote, SHA256.of_bytes(LARGE)) == LARGE
        remote.close()
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        connect(server.address, SHA256).close()


def test_tls_with_a_certificate_that_is_not_trusted_is_refused(certificate: Path, tmp_path: Path) -> None:
    settings = ServerSettings(deadlines=Deadlines(connect=2, idle=2))
    with grpc_server.running(certificate=certificate) as server:
        error = error_of(lambda: connect(server.address, SHA256, settings))
        assert error.kind is ErrorKind.DENIED
        assert "certificates to trust" in str(error)
        absent = ServerSettings(authorities=tmp_path / "absent.pem")
        assert error_of(lambda: connect(server.address, SHA256, absent)).kind is ErrorKind.DENIED


def test_a_port_that_speaks_something_else_is_refused(server: Server) -> None:
    settings = ServerSettings(deadlines=Deadlines(connect=2, idle=2))
    with http_server.running() as web:
        for address in (web.address.replace("http:", "grpc:"), server.address.replace("grpc:", "grpcs:")):
            error = error_of(connect, address, SHA256, settings)
            assert error.kind is ErrorKind.DENIED
            assert "grpc or grpcs" in str(error)


def test_failures_are_raised_and_not_printed(certificate: Path) -> None:
    program = """
import sys
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.remote.grpc import connect
from mlcbuild.cache.remote.transport import TransportError
try:
    connect(sys.argv[1], DigestFunction.SHA256)
except TransportError as error:
    print(error.kind.value)
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    with grpc_server.running(certificate=certificate) as server:
        done = subprocess.run(
            [sys.executable, "-c", program, server.address], capture_output=True, text=True, check=True, env=environment
        )
    assert done.stdout == "denied\n"
    assert done.stderr == ""
