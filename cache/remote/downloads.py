"""Blobs from servers into the store: verified, each once at a time, small ones in batches, large ones in pieces."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.receiving import Reception
from mlcbuild.cache.remote.batches import batched_bytes, download_many, has_batches
from mlcbuild.cache.remote.counters import Moving, Tally
from mlcbuild.cache.remote.flights import Flights
from mlcbuild.cache.remote.peer import Peer, Use
from mlcbuild.cache.remote.policy import Work
from mlcbuild.cache.remote.transport import ErrorKind, TransportError
from mlcbuild.cache.remote.workers import Workers
from mlcbuild.cache.store import LocalBlobStore

_TRIES = 2  # Bytes that are wrong twice are wrong on the server.
_SMALL_BYTES = 64 << 10  # where there are no batches
_MOST_TOLD = 5  # The rest is counted.
_A_BATCH = 64
_BATCH_BYTES = 3 << 20  # what is held in memory of a batch, about


class Downloads:
    """From several servers, asked in order. Thread-safe. A blob that a server fails to send counts as absent there."""

    def __init__(
        self,
        peers: Sequence[Peer],
        *,
        work: Work,
        workers: Workers,
        tally: Tally,
        warn: Callable[[str], object],
    ) -> None:
        self._peers = tuple(peers)
        self._then = ", and is made again where it is needed" if work is Work.BUILD else ": a build makes it again"
        self._workers = workers
        self._tally = tally
        self._warn = warn
        self._flights = Flights()
        self._told_wrong = 0

    def fetch(self, digests: Sequence[Digest], store: LocalBlobStore) -> tuple[Digest, ...]:
        """Bring blobs into the store; answer those that came from nowhere. Raises what the store raises."""
        with self._flights.boarding(store.missing(digests)) as mine:
            left = store.missing(mine)  # Somebody may have landed between the question and the boarding.
            for peer in self._peers:
                if left and not peer.is_off(Use.READ):
                    self._workers.each(lambda job: job(), self._jobs(peer, left, store))
                    left = store.missing(left)
        return store.missing(digests)

    def _jobs(self, peer: Peer, digests: Sequence[Digest], store: LocalBlobStore) -> Iterator[Callable[[], None]]:
        batches = has_batches(peer.transport)
        most = batched_bytes(peer.transport) if batches else _SMALL_BYTES
        for digest in digests:
            if digest.size_bytes > most:
                yield partial(self._one, peer, digest, store)
        small = [digest for digest in digests if digest.size_bytes <= most]
        for together in _batches(small) if batches else ([digest] for digest in small):
            yield partial(self._together, peer, together, store)

    # One blob

    def _one(self, peer: Peer, digest: Digest, store: LocalBlobStore) -> None:
        moving = Moving(self._tally, "bytes_downloaded", digest.size_bytes)
        with moving, store.receive(digest) as reception:
            for _ in range(_TRIES):
                try:
                    attempt = partial(self._attempt, peer, reception, moving)
                    is_there = peer.ask(Use.READ, attempt, size_bytes=digest.size_bytes)
                except TransportError as error:
                    if error.kind is not ErrorKind.ITEM:
                        return
                    is_there = True
                if reception.is_right:
                    moving.kept()
                    self._tally.add(blobs_downloaded=1)
                if reception.is_right or not is_there:
                    return
                self._tally.add(blobs_wrong=1)
        self._tell_wrong(peer, digest)

    def _attempt(self, peer: Peer, reception: Reception, moving: Moving) -> bool:
        reception.restart()
        moving.restart()

        def take(piece: bytes) -> None:
            reception.write(piece)
            moving.moved(len(piece))

        return peer.transport.download(reception.digest, take)

    # Small ones

    def _together(self, peer: Peer, digests: Sequence[Digest], store: LocalBlobStore) -> None:
        """In memory, and into the store without waiting for the disk: what a power failure damages, which the store's
        checksum tells, can be had again.
        """
        left = list(digests)
        for _ in range(_TRIES):
            wrong: list[Digest] = []
            with contextlib.suppress(TransportError):  # What did not come counts as absent.
                peer.ask(Use.READ, partial(self._attempt_together, peer, left, store, wrong))
            if not wrong:
                return
            self._tally.add(blobs_wrong=len(wrong))
            left = wrong
        for digest in left:
            self._tell_wrong(peer, digest)

    def _attempt_together(self, peer: Peer, left: list[Digest], store: LocalBlobStore, wrong: list[Digest]) -> None:
        """Takes out of `left` what has been answered, so that a further attempt asks for the rest."""
        for digest, content in download_many(peer.transport, list(left)):
            left.remove(digest)
            if content is None:
                continue
            if store.function.of_bytes(content) == digest:
                store.put_bytes(content, durable=False)
                self._tally.add(blobs_downloaded=1, bytes_downloaded=len(content))
            else:
                wrong.append(digest)

    def _tell_wrong(self, peer: Peer, digest: Digest) -> None:
        peer.damaged.add(digest)
        self._told_wrong += 1
        if self._told_wrong > _MOST_TOLD:
            return
        self._warn(
            f"the remote cache {peer.address} answers {digest} with bytes that are not this blob; it counts as absent "
            f"there{self._then}"
        )


def _batches(digests: Sequence[Digest]) -> Iterator[list[Digest]]:
    batch: list[Digest] = []
    size = 0
    for digest in digests:
        if batch and (len(batch) >= _A_BATCH or size + digest.size_bytes > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(digest)
        size += digest.size_bytes
    if batch:
        yield batch
