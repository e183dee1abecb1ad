"""The queue of uploads by itself: what failed is sent again when the server is back, also if it fails just then."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.remote.counters import Tally
from mlcbuild.cache.remote.thread_pool import ThreadPool
from mlcbuild.cache.remote.transport import ErrorKind, TransportError
from mlcbuild.cache.remote.upload_queue import UploadQueue
from mlcbuild.cache.remote.uploads import UploadRequest
from tests.remote.memory_transport import BLAKE3
from tests.remote.remote_stores import wait_for


def _request(folder: Path) -> UploadRequest:
    key: Digest = BLAKE3.of_bytes(b"key")
    return UploadRequest(key=key, result=ActionResult(), outputs=(), store=DiskStore(folder, BLAKE3))


def test_an_upload_that_fails_while_the_server_comes_back_is_sent_again(tmp_path: Path) -> None:
    """As when the first of its parallel requests is the trial that succeeds, and the second was refused before."""
    attempts: list[UploadRequest] = []

    def send(request: UploadRequest) -> None:
        attempts.append(request)
        if len(attempts) == 1:
            uploads.retry()
            raise TransportError("it is left alone", kind=ErrorKind.OFF)

    tally = Tally()
    uploads = UploadQueue(
        send, threads=ThreadPool(1, "test"), tally=tally, may_retry=lambda _: True, failed=lambda _: None
    )
    uploads.put(_request(tmp_path))
    wait_for(lambda: not uploads.waiting)
    assert len(attempts) == 2
    assert uploads.drain(1.0, lambda _: None) == (0, 0)
    assert tally.counters().uploads_dropped == 0


def test_an_upload_that_failed_waits_until_the_server_is_back(tmp_path: Path) -> None:
    attempts: list[UploadRequest] = []

    def send(request: UploadRequest) -> None:
        attempts.append(request)
        if len(attempts) == 1:
            raise TransportError("it is left alone", kind=ErrorKind.OFF)

    uploads = UploadQueue(
        send, threads=ThreadPool(1, "test"), tally=Tally(), may_retry=lambda _: True, failed=lambda _: None
    )
    uploads.put(_request(tmp_path))
    wait_for(lambda: not uploads.waiting)
    assert len(attempts) == 1
    uploads.retry()
    wait_for(lambda: len(attempts) == 2 and not uploads.waiting)
    assert uploads.drain(1.0, lambda _: None) == (0, 0)


def test_an_upload_for_a_server_that_has_come_back_meanwhile_is_sent_at_once(tmp_path: Path) -> None:
    attempts: list[UploadRequest] = []
    uploads = UploadQueue(attempts.append, threads=ThreadPool(1, "test"), tally=Tally(), failed=lambda _: None)
    request, before = _request(tmp_path), uploads.recoveries
    uploads.keep(request, recoveries=before)
    assert not attempts
    uploads.retry()
    wait_for(lambda: attempts == [request])
    uploads.keep(request, recoveries=before)
    wait_for(lambda: attempts == [request, request])
