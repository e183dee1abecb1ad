"""Servers that trickle, and lines that are slow but honest, over HTTP, S3 and gRPC, downwards and upwards.

Windows are of a second or two, where those of builds are of a minute.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote import grpc as grpc_remote
from mlcbuild.cache.remote import http as http_remote
from mlcbuild.cache.remote.settings import Deadlines, ServerSettings
from mlcbuild.cache.remote.transport import ErrorKind, OnSent, Transport, TransportError, ignore_progress
from tests.remote import grpc_server, http_server
from tests.remote.fault_proxy import Fault, FaultProxy, faulty
from tests.remote.s3_world import MIB, Taken, World

SHA256 = DigestFunction.SHA256
KINDS = ("http", "s3", "grpc")
GIGABYTE = 1 << 30
HUGE = Digest(hashlib.sha256(b"a gigabyte").hexdigest(), GIGABYTE)
TRICKLE_SECONDS = 0.02
HONEST = 200_000  # bytes a second
STRICT = Deadlines(connect=5, idle=20, total=1, bytes_per_second=100_000)
# A window that a loaded machine does not sleep through.
PATIENT = Deadlines(connect=5, idle=20, total=5, bytes_per_second=HONEST / 4)


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Line:
    """A transport of one kind, and how the way to its server is made bad."""

    def __init__(self, transport: Transport, proxy: FaultProxy | None, server: grpc_server.Server | None) -> None:
        self.transport = transport
        self._proxy = proxy
        self._server = server
        self.ended = threading.Event()

    def claims(self, digest: Digest) -> None:
        """The server says that it has such a blob, and sends a byte of it now and then."""
        if self._proxy is not None:
            is_get = lambda request: request.method == "GET"  # noqa: E731
            self._proxy.faults.append(Fault(wanted=is_get, times=-1, trickle=TRICKLE_SECONDS, claims=digest.size_bytes))
        if self._server is not None:
            self._server.blobs[str(digest)] = bytes(100_000)
            self._server.piece_bytes = 1
            self._server.after_piece = lambda: self.ended.wait(TRICKLE_SECONDS)

    def sends_at(self, bytes_per_second: int) -> None:
        if self._proxy is not None:
            is_get = lambda request: request.method == "GET"  # noqa: E731
            self._proxy.faults.append(Fault(wanted=is_get, times=-1, bytes_per_second=bytes_per_second))
        if self._server is not None:
            self._server.piece_bytes = bytes_per_second // 20
            self._server.after_piece = lambda: self.ended.wait(0.05)

    def reads_at(self, bytes_per_second: int) -> None:
        if self._proxy is not None:
            self._proxy.reading_bytes_per_second = bytes_per_second
        if self._server is not None:
            self._server.after_request = lambda count: self.ended.wait(count / bytes_per_second)


@contextmanager
def line(kind: str, world: World, deadlines: Deadlines) -> Iterator[Line]:
    settings = ServerSettings(deadlines=deadlines)
    if kind == "grpc":
        with grpc_server.running() as grpc:
            transport: Transport = grpc_remote.connect(grpc.address, SHA256, settings)
            made = Line(transport, None, grpc)
            try:
                yield made
            finally:
                made.ended.set()
                transport.close()
        return
    if kind == "http":
        with http_server.running() as cache, faulty(int(cache.address.rpartition(":")[2])) as proxy:
            transport = http_remote.connect(proxy.endpoint, SHA256, settings)
            yield Line(transport, proxy, None)
            transport.close()
        return
    with faulty(world.server.port) as proxy:
        s3 = world.transport(function=SHA256, endpoint=proxy.endpoint, deadlines=deadlines, connections=2)
        yield Line(s3, proxy, None)


def given_up(call: Callable[[], object]) -> float:
    """After how many seconds."""
    began = time.monotonic()
    with pytest.raises(TransportError) as caught:
        call()
    assert caught.value.kind is ErrorKind.TRANSIENT, caught.value
    assert "in time" in str(caught.value)
    return time.monotonic() - began


@pytest.mark.parametrize("kind", KINDS)
def test_a_gigabyte_that_trickles_is_given_up_within_the_window(world: World, kind: str) -> None:
    # At the minimum throughput, all of it would take three hours.
    with line(kind, world, STRICT) as bad:
        bad.claims(HUGE)
        # S3 has a window for each of many requests, and two for all of them.
        assert 0.9 < given_up(lambda: bad.transport.download(HUGE, Taken())) < 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_gigabyte_that_is_taken_a_little_at_a_time_is_given_up_within_the_window(
    world: World, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(GIGABYTE)
    with line(kind, world, STRICT) as bad:
        bad.reads_at(2_000)
        assert 0.9 < given_up(lambda: bad.transport.upload(HUGE, path)) < 15


@pytest.mark.slow
def test_lines_that_are_slow_but_honest_are_waited_for(world: World) -> None:
    """Six at once, each for longer than a window."""
    path, digest = world.file(int(HONEST * 6.5), function=SHA256)
    results: dict[str, object] = {}

    def there_and_back(kind: str, *, up: bool) -> None:
        name = f"{kind} {'up' if up else 'down'}"
        try:
            with line(kind, world, PATIENT) as slow:
                if up:
                    slow.reads_at(HONEST)
                else:
                    slow.transport.upload(digest, path)
                    slow.sends_at(HONEST)
                began = time.monotonic()
                if up:
                    slow.transport.upload(digest, path, replace=True)
                else:
                    taken = Taken()
                    assert slow.transport.download(digest, taken)
                    assert taken.data == path.read_bytes()
                results[name] = time.monotonic() - began
        except BaseException as error:
            results[name] = error

    threads = [
        threading.Thread(target=there_and_back, args=(kind,), kwargs={"up": up}) for kind in KINDS for up in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    for name, seconds in results.items():
        assert isinstance(seconds, float), f"{name}: {seconds!r}"
        assert seconds > PATIENT.total, name


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_of_an_upload_are_told_while_they_go(world: World, kind: str) -> None:
    path, digest = world.file(6 * MIB, function=SHA256)
    told: list[int] = []
    with line(kind, world, Deadlines()) as good:
        on_sent: OnSent = told.append
        assert good.transport.upload(digest, path, on_sent=on_sent)
        assert sum(told) == digest.size_bytes
        assert sum(count > 0 for count in told) >= 12
        assert good.transport.upload(digest, path, on_sent=ignore_progress) is (kind == "grpc")
