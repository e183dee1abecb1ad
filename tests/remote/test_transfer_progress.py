"""Bytes count while they move, and in the end each once; what people are told names what they do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.remote.counters import Counters, Tally, TransferProgress
from mlcbuild.cache.remote.policy import Purpose
from mlcbuild.cache.remote.transport import ErrorKind, OnSent, Sink, TransportError, ignore_progress
from tests.remote.cache_world import machine, made
from tests.remote.memory_transport import BLAKE3, MemoryTransport, transient

SIZE = 100_000


@given(
    attempts=st.lists(st.lists(st.integers(0, 700), max_size=8), max_size=5),
    is_kept=st.booleans(),
)
def test_a_blob_counts_while_it_moves_and_in_the_end_once_or_not_at_all(
    attempts: list[list[int]], is_kept: bool
) -> None:
    tally = Tally()
    furthest = 0
    with TransferProgress(tally, "bytes_uploaded", 1000) as progress:
        for pieces in attempts:
            progress.restart()
            for number, piece in enumerate(pieces):
                progress.moved(piece)
                furthest = max(furthest, min(1000, sum(pieces[: number + 1])))
                assert tally.counters() == Counters(bytes_uploaded=furthest)
        if is_kept:
            progress.complete()
    assert tally.counters() == Counters(bytes_uploaded=1000 if is_kept else 0)


@dataclass
class Stuttering(MemoryTransport):
    """Large blobs move in quarters; each transfer of one breaks off after that many of `breaks`. `look` is called after
    each quarter.
    """

    breaks: list[int] = field(default_factory=list)
    look: Callable[[], object] = lambda: None

    def download(self, digest: Digest, sink: Sink) -> bool:
        return (
            self._in_quarters(self.blobs[digest], sink) if digest.size_bytes == SIZE else super().download(digest, sink)
        )

    def upload(self, digest: Digest, path: Path, *, replace: bool = False, on_sent: OnSent = ignore_progress) -> bool:
        if digest.size_bytes == SIZE:
            self._in_quarters(path.read_bytes(), lambda piece: on_sent(len(piece)))
        return super().upload(digest, path, replace=replace)

    def _in_quarters(self, data: bytes, take: Sink) -> bool:
        end = self.breaks.pop(0) if self.breaks else 4
        for number in range(end):
            take(data[number * SIZE // 4 : (number + 1) * SIZE // 4])
            self.look()
        if end < 4:
            raise transient("reset")
        return True


def blob(store: DiskStore) -> Digest:
    return store.put_bytes(bytes(range(250)) * (SIZE // 250), durable=False)


def test_a_download_that_breaks_off_counts_each_byte_once(tmp_path: Path) -> None:
    server = Stuttering(breaks=[2, 3])
    elsewhere = DiskStore(tmp_path / "elsewhere", BLAKE3)
    digest = blob(elsewhere)
    server.blobs[digest] = elsewhere.read(digest)
    one = machine(tmp_path / "one", server)
    seen: list[int] = []
    server.look = lambda: seen.append(one.cache.counters.bytes_downloaded * 4 // SIZE)
    assert one.cache.fetch([digest], one.store) == ()
    assert seen == [1, 2, 2, 2, 3, 3, 3, 3, 4]
    counters = one.cache.counters
    assert (counters.bytes_downloaded, counters.blobs_downloaded, counters.retries) == (SIZE, 1, 2)


def test_an_upload_that_breaks_off_counts_each_byte_once(tmp_path: Path) -> None:
    server = Stuttering(breaks=[3, 1])
    one = machine(tmp_path / "one", server)
    digest = blob(one.store)
    seen: list[int] = []
    server.look = lambda: seen.append(one.cache.counters.bytes_uploaded * 4 // SIZE)
    one.cache.send_blobs([digest], one.store)
    assert seen == [1, 2, 3, 3, 3, 3, 3, 4]
    counters = one.cache.counters
    assert (counters.bytes_uploaded, counters.blobs_uploaded, counters.retries) == (SIZE, 1, 2)


def test_what_comes_to_nothing_counts_nothing_in_the_end(tmp_path: Path) -> None:
    one = machine(tmp_path / "one", Stuttering(breaks=[3, 3, 3]))
    digest = blob(one.store)
    with pytest.raises(TransportError):
        one.cache.send_blobs([digest], one.store)
    server = Stuttering(breaks=[3, 3, 3])
    server.blobs[digest] = one.store.read(digest)
    two = machine(tmp_path / "two", server)
    assert two.cache.fetch([digest], two.store) == (digest,)
    assert one.cache.counters.bytes_uploaded == two.cache.counters.bytes_downloaded == 0


def test_a_blob_of_which_the_server_keeps_its_own_counts_nothing(tmp_path: Path) -> None:
    server = Stuttering()
    one = machine(tmp_path / "one", server)
    digest = blob(one.store)

    def another_sends_it() -> None:
        server.blobs[digest] = one.store.read(digest)

    server.look = another_sends_it
    one.cache.send_blobs([digest], one.store)
    counters = one.cache.counters
    assert (counters.bytes_uploaded, counters.blobs_uploaded) == (0, 0)


@pytest.mark.parametrize(
    ("purpose", "failed", "off"),
    [
        (
            Purpose.BUILD,
            "the remote cache memory://server failed; the build continues without its answer: reset",
            "the remote cache memory://server keeps failing; the build continues without it and tries it again later: "
            "reset",
        ),
        (
            Purpose.PULL,
            "the remote cache memory://server failed; the pull continues with the rest: reset",
            "the remote cache memory://server keeps failing; disabled for this pull: reset",
        ),
        (
            Purpose.PUSH,
            "the remote cache memory://server failed; the push continues with the rest: reset",
            "the remote cache memory://server keeps failing; disabled for this push: reset",
        ),
    ],
)
def test_an_error_says_what_goes_on(tmp_path: Path, purpose: Purpose, failed: str, off: str) -> None:
    server = MemoryTransport(fail=lambda _method: transient("reset"))
    one = machine(tmp_path / "one", server, purpose=purpose)
    for number in range(4):
        assert one.cache.find(BLAKE3.of_bytes(b"%d" % number), one.store) is None
    assert one.told == [failed, off]


def test_a_server_that_takes_nothing_is_told_of_the_push(tmp_path: Path) -> None:
    refused = TransportError("forbidden", kind=ErrorKind.DENIED)
    one = machine(tmp_path / "one", MemoryTransport(fail=lambda _method: refused), purpose=Purpose.PUSH)
    one.send(made(one.store, 1))
    one.cache.finish()
    assert one.told == [
        "the remote cache memory://server denied an upload; uploads are disabled for this push: forbidden"
    ]


def test_a_damaged_blob_is_told_to_who_pulls(tmp_path: Path) -> None:
    server = Stuttering()
    elsewhere = DiskStore(tmp_path / "elsewhere", BLAKE3)
    digest = blob(elsewhere)
    server.blobs[digest] = bytes(SIZE)
    one = machine(tmp_path / "one", server, purpose=Purpose.PULL)
    assert one.cache.fetch([digest], one.store) == (digest,)
    assert one.told == [
        f"the remote cache memory://server returned wrong bytes for the blob {digest}, which counts as absent "
        "there: a build makes it again"
    ]
    assert one.cache.counters.bytes_downloaded == 0
