"""What an HTTP cache is asked, and what comes of its answers and errors."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.http import connect
from mlcbuild.cache.remote.settings import Deadlines, ServerSettings
from mlcbuild.cache.remote.transport import ErrorKind, Transport, TransportError
from tests.remote import http_server
from tests.remote.http_server import Cache
from tests.remote.moving import downloaded, uploaded

SHA256 = DigestFunction.SHA256
KEY = SHA256.of_bytes(b"an action")
IMPATIENT = ServerSettings(deadlines=Deadlines(connect=1, idle=0.3, total=0.8))


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


@pytest.fixture
def cache() -> Iterator[Cache]:
    with http_server.running() as cache:
        yield cache


@pytest.fixture
def remote(cache: Cache) -> Iterator[Transport]:
    transport = connect(cache.address + "/base", SHA256)
    yield transport
    transport.close()


def impatient(cache: Cache) -> Transport:
    return connect(cache.address, SHA256, IMPATIENT)


def stored(cache: Cache, content: bytes, base: str = "") -> Digest:
    digest = SHA256.of_bytes(content)
    cache.blobs[f"{base}/cas/{digest.hash}"] = content
    return digest


def error_of(action: Callable[[], object]) -> TransportError:
    with pytest.raises(TransportError) as caught:
        action()
    return caught.value


# Bytes and names


@pytest.mark.parametrize("content", [b"", b"x", b"hello\n", os.urandom(10 << 20)], ids=["0", "1", "6", "10 MiB"])
@pytest.mark.parametrize("function", list(DigestFunction))
def test_a_blob_comes_back_as_it_went(cache: Cache, tmp_path: Path, content: bytes, function: DigestFunction) -> None:
    remote = connect(cache.address, function)
    assert uploaded(remote, content, tmp_path) == bool(content)
    assert downloaded(remote, function.of_bytes(content)) == content
    remote.close()


def test_names_are_those_of_the_protocol(cache: Cache, remote: Transport, tmp_path: Path) -> None:
    uploaded(remote, b"hello\n", tmp_path)
    remote.write_result(KEY, b"result")
    assert cache.blobs == {
        "/base/cas/5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03": b"hello\n",
        "/base/ac/" + hashlib.sha256(b"an action").hexdigest(): b"result",
    }


def test_what_is_absent_is_told_from_an_error(cache: Cache, remote: Transport) -> None:
    absent = SHA256.of_bytes(b"absent")
    assert downloaded(remote, absent) is None
    assert remote.read_result(KEY) is None
    assert remote.missing([absent]) == (absent,)
    cache.faults.append(http_server.status(410, times=-1))
    assert downloaded(remote, absent) is None


def test_missing_names_what_is_not_there_with_its_size_once_and_in_order(cache: Cache, remote: Transport) -> None:
    there = [stored(cache, b"%d" % number, "/base") for number in range(40)]
    absent = [SHA256.of_bytes(b"absent %d" % number) for number in range(40)]
    other_size = Digest(there[0].hash, 77)
    asked = [digest for pair in zip(absent, there, strict=True) for digest in pair]
    assert remote.missing([*asked, other_size, *asked, SHA256.of_bytes(b"")]) == (*absent, other_size)
    assert cache.methods() == ["HEAD"] * 81


def test_a_result_is_kept_unless_it_is_replaced(cache: Cache, remote: Transport) -> None:
    assert remote.write_result(KEY, b"first")
    assert not remote.write_result(KEY, b"second")
    assert remote.read_result(KEY) == b"first"
    assert remote.write_result(KEY, b"third", replace=True)
    assert remote.read_result(KEY) == b"third"
    assert remote.write_result(SHA256.of_bytes(b"other"), b"")
    assert remote.read_result(SHA256.of_bytes(b"other")) == b""


def test_a_result_that_comes_in_between_is_kept(cache: Cache, remote: Transport) -> None:
    def somebody_else(handler: http_server.Handler) -> bool:
        if handler.command == "PUT":
            cache.blobs[handler.path] = b"theirs"
        return False

    cache.faults.append(somebody_else)
    assert not remote.write_result(KEY, b"ours")
    assert remote.read_result(KEY) == b"theirs"


def test_a_large_blob_alone_is_asked_for_before_it_is_sent(cache: Cache, remote: Transport, tmp_path: Path) -> None:
    large = bytes((1 << 20) + 1)
    assert uploaded(remote, large, tmp_path)
    assert not uploaded(remote, large, tmp_path)
    assert uploaded(remote, large[:-1], tmp_path)
    assert uploaded(remote, large[:-1], tmp_path)
    assert cache.methods() == ["HEAD", "PUT", "HEAD", "PUT", "PUT"]


def test_a_body_without_a_length_is_taken(cache: Cache, remote: Transport) -> None:
    content = os.urandom(300_000)
    digest = stored(cache, content, "/base")
    cache.faults.append(http_server.in_pieces)
    assert downloaded(remote, digest) == content
    assert downloaded(remote, digest) == content
    assert len({asked.connection for asked in cache.log}) == 1


def test_memory_is_bounded_by_pieces(cache: Cache, remote: Transport) -> None:
    digest = stored(cache, os.urandom(8 << 20), "/base")
    sizes: list[int] = []
    assert remote.download(digest, lambda piece: sizes.append(len(piece)))
    assert sum(sizes) == 8 << 20
    assert max(sizes) <= 1 << 20


# Connections


def test_one_connection_serves_many_calls(cache: Cache, remote: Transport, tmp_path: Path) -> None:
    digest = stored(cache, b"x" * 1000, "/base")
    for _ in range(5):
        remote.missing([digest])
        downloaded(remote, digest)
        downloaded(remote, KEY)
        uploaded(remote, b"y", tmp_path)
        remote.write_result(KEY, b"z")
    assert len(cache.log) == 25 + 1
    assert len({asked.connection for asked in cache.log}) == 1


def test_a_connection_that_the_server_closed_is_not_used_again(cache: Cache, remote: Transport) -> None:
    digest = stored(cache, b"x", "/base")

    def closing(handler: http_server.Handler) -> bool:
        handler.close_connection = True  # and says nothing of it
        return False

    cache.faults.append(closing)
    for _ in range(5):
        assert downloaded(remote, digest) == b"x"
        time.sleep(0.05)


def test_calls_from_many_threads_do_not_mix(cache: Cache, remote: Transport) -> None:
    digests = [stored(cache, os.urandom(20_000 + number), "/base") for number in range(60)]
    wrong: list[Digest] = []

    def work(own: list[Digest]) -> None:
        for digest in own:
            content = downloaded(remote, digest)
            if content is None or SHA256.of_bytes(content) != digest:
                wrong.append(digest)

    threads = [threading.Thread(target=work, args=(digests[start::6],)) for start in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len({asked.connection for asked in cache.log}) <= 6


def test_what_the_sink_raises_is_passed_on(cache: Cache, remote: Transport) -> None:
    digest = stored(cache, bytes(1 << 20), "/base")

    def full(piece: bytes) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        remote.download(digest, full)
    assert downloaded(remote, digest) == bytes(1 << 20)


def test_nothing_goes_out_of_a_closed_transport(cache: Cache, remote: Transport) -> None:
    remote.missing([KEY])
    remote.close()
    assert "closed" in error_of(lambda: remote.missing([KEY])).message
    assert len(cache.log) == 1


# Errors


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (400, ErrorKind.UNUSABLE),
        (401, ErrorKind.DENIED),
        (403, ErrorKind.DENIED),
        (405, ErrorKind.UNUSABLE),
        (408, ErrorKind.TRANSIENT),
        (413, ErrorKind.UNUSABLE),
        (429, ErrorKind.TRANSIENT),
        (500, ErrorKind.TRANSIENT),
        (501, ErrorKind.UNUSABLE),
        (503, ErrorKind.TRANSIENT),
        (507, ErrorKind.TRANSIENT),
        (599, ErrorKind.TRANSIENT),
    ],
)
def test_a_status_says_what_helps(
    cache: Cache, remote: Transport, tmp_path: Path, code: int, expected: ErrorKind
) -> None:
    cache.faults.append(http_server.status(code, times=-1))
    calls: list[Callable[[], object]] = [
        lambda: remote.missing([KEY]),
        lambda: downloaded(remote, KEY),
        lambda: uploaded(remote, b"x", tmp_path),
        lambda: remote.read_result(KEY),
        lambda: remote.write_result(KEY, b"x"),
        lambda: remote.write_result(KEY, b"x", replace=True),
    ]
    for call in calls:
        error = error_of(call)
        assert error.kind is expected
        assert str(code) in error.message
        assert remote.address in error.message


def test_the_time_that_a_server_asks_to_wait_is_told(cache: Cache, remote: Transport) -> None:
    def waiting(value: str) -> float:
        cache.faults[:] = [http_server.status(429, headers={"Retry-After": value})]
        return error_of(lambda: remote.read_result(KEY)).retry_after

    assert waiting("7") == 7
    assert 25 < waiting(formatdate(time.time() + 30, usegmt=True)) <= 30
    assert waiting(formatdate(time.time() - 30, usegmt=True)) == 0
    assert waiting("soon") == 0
    assert waiting("99999999999") == 3600


def test_a_reset_is_transient_and_the_next_call_works(cache: Cache, remote: Transport) -> None:
    digest = stored(cache, b"x", "/base")
    cache.faults.append(http_server.reset)
    assert error_of(lambda: downloaded(remote, digest)).kind is ErrorKind.TRANSIENT
    cache.faults.clear()
    assert downloaded(remote, digest) == b"x"


def test_a_body_that_is_cut_short_is_transient_and_says_where(cache: Cache, remote: Transport) -> None:
    digest = stored(cache, bytes(1000), "/base")
    cache.blobs[f"/base/ac/{KEY.hash}"] = bytes(1000)
    cache.faults.append(http_server.cut_short)
    error = error_of(lambda: downloaded(remote, digest))
    assert error.kind is ErrorKind.TRANSIENT
    assert "cut short after 500 of 1000 bytes" in error.message
    assert error_of(lambda: remote.read_result(KEY)).kind is ErrorKind.TRANSIENT


@pytest.mark.parametrize("fault", [None, http_server.in_pieces])
def test_a_body_of_another_length_is_never_taken_for_the_blob(
    cache: Cache, remote: Transport, fault: http_server.Fault | None
) -> None:
    digest = SHA256.of_bytes(bytes(1000))
    cache.faults.extend([fault] if fault else [])
    for length in (0, 999, 1001):
        cache.blobs[f"/base/cas/{digest.hash}"] = bytes(length)
        received: list[bytes] = []
        error = error_of(lambda received=received: remote.download(digest, received.append))  # type: ignore[misc]
        assert error.kind is (ErrorKind.TRANSIENT if fault and length < 1000 else ErrorKind.ITEM)
        # What is announced is known before anything is handed over.
        assert sum(map(len, received)) <= (1000 if fault else 0)


def test_a_compressed_body_that_nobody_asked_for_is_refused(cache: Cache, remote: Transport) -> None:
    digest = stored(cache, bytes(1000), "/base")
    cache.faults.append(http_server.status(200, headers={"Content-Encoding": "gzip"}))
    assert error_of(lambda: downloaded(remote, digest)).kind is ErrorKind.UNUSABLE


@pytest.mark.parametrize("fault", [http_server.stall, http_server.trickle_headers])
def test_a_server_that_keeps_a_client_waiting_is_left_in_time(cache: Cache, fault: http_server.Fault) -> None:
    remote = impatient(cache)
    digest = stored(cache, bytes(1000))
    cache.faults.append(fault)
    start = time.monotonic()
    error = error_of(lambda: downloaded(remote, digest))
    assert time.monotonic() - start < 3
    assert error.kind is ErrorKind.TRANSIENT
    assert "no answer in time" in error.message
    cache.faults.clear()
    assert downloaded(remote, digest) == bytes(1000)
    remote.close()


def test_a_server_that_reads_no_more_of_an_upload_is_left_in_time(cache: Cache, tmp_path: Path) -> None:
    released = threading.Event()
    cache.faults.append(lambda handler: handler.command == "PUT" and released.wait(10))
    remote = connect(cache.address, SHA256, ServerSettings(deadlines=Deadlines(idle=0.3)))
    start = time.monotonic()
    assert error_of(lambda: uploaded(remote, bytes(32 << 20), tmp_path)).kind is ErrorKind.TRANSIENT
    assert time.monotonic() - start < 3
    released.set()
    remote.close()


def test_a_server_that_refuses_before_it_has_read_the_body_is_heard(cache: Cache, tmp_path: Path) -> None:
    released = threading.Event()

    def refusing(handler: http_server.Handler) -> bool:
        if handler.command == "PUT":
            time.sleep(0.2)  # The client has filled what the network holds by then, and waits.
            handler.answer(403)
            released.wait(10)
            handler.close_connection = True
            return True
        return False

    cache.faults.append(refusing)
    remote = connect(cache.address, SHA256)
    start = time.monotonic()
    error = error_of(lambda: uploaded(remote, bytes(64 << 20), tmp_path))
    assert time.monotonic() - start < 4
    assert error.kind is ErrorKind.DENIED
    released.set()
    remote.close()


def test_nobody_at_the_address_is_transient_and_no_such_host_is_not(tmp_path: Path) -> None:
    with http_server.running() as cache:
        gone = cache.address
    assert error_of(lambda: connect(gone, SHA256).missing([KEY])).kind is ErrorKind.TRANSIENT
    unknown = error_of(lambda: connect("http://nobody.invalid", SHA256).missing([KEY]))
    assert "host was not found" in unknown.message


def test_what_speaks_no_http_is_unusable(cache: Cache, remote: Transport) -> None:
    def babble(handler: http_server.Handler) -> bool:
        handler.wfile.write(b"220 mail.example ESMTP\r\n")
        handler.close_connection = True
        return True

    cache.faults.append(babble)
    assert error_of(lambda: remote.missing([KEY])).kind is ErrorKind.UNUSABLE


def test_one_failure_ends_a_question_about_many(cache: Cache, remote: Transport) -> None:
    cache.faults.append(http_server.status(503, times=-1))
    digests = [SHA256.of_bytes(b"%d" % number) for number in range(2000)]
    assert error_of(lambda: remote.missing(digests)).kind is ErrorKind.TRANSIENT
    assert len(cache.log) <= 16


def test_a_file_that_is_not_the_blob_is_an_error_and_stores_nothing(cache: Cache, tmp_path: Path) -> None:
    remote = impatient(cache)
    digest = SHA256.of_bytes(bytes(1000))
    short = tmp_path / "short"
    short.write_bytes(bytes(999))
    assert "ends 1 bytes before" in error_of(lambda: remote.upload(digest, short)).message
    assert "cannot be read" in error_of(lambda: remote.upload(digest, tmp_path / "nothing")).message
    assert not cache.blobs
    remote.close()


def test_blake3_refused_says_what_to_set(cache: Cache) -> None:
    cache.faults.append(http_server.status(400, times=-1))
    remote = connect(cache.address, DigestFunction.BLAKE3)
    assert 'digest = "sha256"' in str(error_of(lambda: remote.write_result(KEY, b"x", replace=True)))
    remote.close()
