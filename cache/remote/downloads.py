"""Downloads of blobs into the store. Blobs are verified; small ones come in batches, large ones in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mlcbuild.cache.blob_writer import BlobWriter
from mlcbuild.cache.digest import Digest
from mlcbuild.cache.remote.batches import batched_bytes, download_many, has_batches
from mlcbuild.cache.remote.counters import Tally, TransferProgress
from mlcbuild.cache.remote.policy import Purpose
from mlcbuild.cache.remote.remote_server import Access, RemoteServer
from mlcbuild.cache.remote.single_flight import SingleFlight
from mlcbuild.cache.remote.thread_pool import ThreadPool
from mlcbuild.cache.remote.transport import ErrorKind, TransportError
from mlcbuild.cache.store import LocalBlobStore

_TRIES = 2  # Bytes that are wrong twice are wrong on the server.
_SMALL_BYTES = 64 << 10  # without batches
_MOST_TOLD = 5  # Further ones are only counted.
_A_BATCH = 64
_BATCH_BYTES = 3 << 20  # of one batch in memory, approximately


class Downloads:
    """Downloads from several servers, in their order. Thread-safe. A failed download means that the blob is absent
    there.
    """

    def __init__(
        self,
        servers: Sequence[RemoteServer],
        *,
        purpose: Purpose,
        threads: ThreadPool,
        tally: Tally,
        warn: Callable[[str], object],
    ) -> None:
        self._servers = tuple(servers)
        self._then = ", and is made again if it is needed" if purpose is Purpose.BUILD else ": a build makes it again"
        self._threads = threads
        self._tally = tally
        self._warn = warn
        self._single_flight = SingleFlight()
        self._told_wrong = 0

    def fetch(
        self, digests: Sequence[Digest], store: LocalBlobStore, errors: list[TransportError] | None = None
    ) -> tuple[Digest, ...]:
        """Download blobs into the store. Answer those that did not come; `errors` gets why, where they are not absent.

        Raises what the store raises.
        """
        errors = [] if errors is None else errors
        with self._single_flight.claim(store.missing(digests)) as mine:
            left = store.missing(mine)  # Another download may have ended since the last question.
            for server in self._servers:
                if left and not server.is_off(Access.READ):
                    self._threads.for_each(lambda job: job(), self._jobs(server, left, store, errors))
                    left = store.missing(left)
        return store.missing(digests)

    def _jobs(
        self, server: RemoteServer, digests: Sequence[Digest], store: LocalBlobStore, errors: list[TransportError]
    ) -> Iterator[Callable[[], None]]:
        batches = has_batches(server.transport)
        most = batched_bytes(server.transport) if batches else _SMALL_BYTES
        for digest in digests:
            if digest.size_bytes > most:
                yield partial(self._one, server, digest, store, errors)
        small = [digest for digest in digests if digest.size_bytes <= most]
        for together in _batches(small) if batches else ([digest] for digest in small):
            yield partial(self._together, server, together, store, errors)

    # One blob

    def _one(self, server: RemoteServer, digest: Digest, store: LocalBlobStore, errors: list[TransportError]) -> None:
        progress = TransferProgress(self._tally, "bytes_downloaded", digest.size_bytes)
        with progress, store.receive(digest) as reception:
            for _ in range(_TRIES):
                try:
                    attempt = partial(self._attempt, server, reception, progress)
                    is_there = server.ask(Access.READ, attempt, size_bytes=digest.size_bytes)
                except TransportError as error:
                    if error.kind is not ErrorKind.ITEM:
                        errors.append(error)
                        return
                    is_there = True
                if reception.is_complete:
                    progress.complete()
                    self._tally.add(blobs_downloaded=1)
                if reception.is_complete or not is_there:
                    return
                self._tally.add(blobs_wrong=1)
        self._tell_wrong(server, digest)

    def _attempt(self, server: RemoteServer, reception: BlobWriter, progress: TransferProgress) -> bool:
        reception.restart()
        progress.restart()

        def take(piece: bytes) -> None:
            reception.write(piece)
            progress.moved(len(piece))

        return server.transport.download(reception.digest, take)

    # Small ones

    def _together(
        self, server: RemoteServer, digests: Sequence[Digest], store: LocalBlobStore, errors: list[TransportError]
    ) -> None:
        """Download small blobs in memory, and store them without waiting for the disk.

        A power failure may damage them. The store's checksum shows that, and they can be downloaded again.
        """
        left = list(digests)
        for _ in range(_TRIES):
            wrong: list[Digest] = []
            try:
                server.ask(Access.READ, partial(self._attempt_together, server, left, store, wrong))
            except TransportError as error:  # Blobs that did not come count as absent.
                errors.append(error)
            if not wrong:
                return
            self._tally.add(blobs_wrong=len(wrong))
            left = wrong
        for digest in left:
            self._tell_wrong(server, digest)

    def _attempt_together(
        self, server: RemoteServer, left: list[Digest], store: LocalBlobStore, wrong: list[Digest]
    ) -> None:
        """Remove the answered blobs from `left`, so that a further attempt asks only for the rest."""
        for digest, content in download_many(server.transport, list(left)):
            left.remove(digest)
            if content is None:
                continue
            if store.function.of_bytes(content) == digest:
                store.put_bytes(content, durable=False)
                self._tally.add(blobs_downloaded=1, bytes_downloaded=len(content))
            else:
                wrong.append(digest)

    def _tell_wrong(self, server: RemoteServer, digest: Digest) -> None:
        server.damaged.add(digest)
        self._told_wrong += 1
        if self._told_wrong > _MOST_TOLD:
            return
        self._warn(
            f"the remote cache {server.address} returned wrong bytes for the blob {digest}, which counts as absent "
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
