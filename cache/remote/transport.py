"""The door to a server that holds blobs and results for others: what S3, HTTP and gRPC have in common.

A transport moves bytes once, verifies nothing and waits for nobody twice; retries, verification, inlining, signatures
and the decision to go on without a remote are `RemoteStore`'s. Every method is safe to call from several threads, has
a deadline of its own, and raises `TransportError` alone.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.errors import CacheError

Sink = Callable[[bytes], object]
"""Takes the bytes of a blob in order, a piece at a time. What it raises ends the download and is passed on."""

OnSent = Callable[[int], object]
"""Is told, from any thread, how many more bytes of a blob have gone. What is sent again is told again."""


def ignore_progress(_count: int) -> None:
    """For who does not want to know."""


class ErrorKind(enum.Enum):
    """What kind of failure it was, by what helps against it."""

    TRANSIENT = "transient"  # again, later: a reset, a time-out, a body cut short, 429, 500 and 503
    REFUSED = "refused"  # not without another setting: credentials, permissions, an address that nobody has
    UNUSABLE = "unusable"  # the server does not do what is asked of it, or answers what nobody understands
    ITEM = "item"  # with this one blob or result alone: its size, what is kept under its name, what may not be replaced


class TransportError(CacheError):
    """A request failed. The message names the operation and the server, never a credential."""

    def __init__(
        self, message: str, *, kind: ErrorKind, retry_after: float = 0.0, advice: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, advice=advice)
        self.kind = kind
        self.retry_after = retry_after  # seconds that the server asks to wait; 0 where it does not


class DigestFunctionError(TransportError):
    """The server names blobs by other functions than the workspace: a mistake in a setting, cured by nothing else."""

    def __init__(self, message: str, *, advice: tuple[str, ...] = ()) -> None:
        super().__init__(message, kind=ErrorKind.UNUSABLE, advice=advice)


class Transport(Protocol):
    """One server, one digest function, one place in it (a bucket and prefix, a base address, an instance)."""

    @property
    def address(self) -> str:
        """For people, without credentials: `s3://bucket/prefix`."""
        ...

    @property
    def function(self) -> DigestFunction: ...

    def missing(self, digests: Sequence[Digest]) -> tuple[Digest, ...]:
        """Those of `digests` that are not there with their size; as few requests as the server allows."""
        ...

    def download(self, digest: Digest, sink: Sink) -> bool:
        """Hand the blob's bytes to `sink` in order, in bounded memory; False, nothing handed over, where it is absent.

        After an error `sink` may have had a part of them: who tries again begins anew. A body shorter or longer than
        the digest's size is a TransportError.
        """
        ...

    def upload(self, digest: Digest, path: Path, *, replace: bool = False, on_sent: OnSent = ignore_progress) -> bool:
        """Store the file's bytes, which are the blob and do not change; False where the server keeps what it had.

        With `replace` they take the place of what is there, in case that is damaged, as far as the server lets them.
        Those of a large blob are told to `on_sent` while they go.
        """
        ...

    def read_result(self, key: Digest) -> bytes | None:
        """The bytes kept under the key of an action; None where there are none."""
        ...

    def write_result(self, key: Digest, data: bytes, *, replace: bool = False) -> bool:
        """Keep bytes under a key; without `replace`, False where somebody else's are there, which stay."""
        ...

    def close(self) -> None:
        """Let connections go. Nothing may be called afterwards."""
        ...


class BatchingTransport(Transport, Protocol):
    """What a transport may offer beside: many small blobs in one request. `remote.batches` serves those without."""

    @property
    def batched_bytes(self) -> int:
        """The size of the largest blob that these methods take; others are a ValueError."""
        ...

    def download_many(self, digests: Sequence[Digest]) -> Iterator[tuple[Digest, bytes | None]]:
        """Each digest once, in any order, with what is kept under its name, however long; None where it is absent.

        After an error the pairs that came are good; who tries again asks for the others.
        """
        ...

    def upload_many(self, blobs: Sequence[tuple[Digest, Path]], *, replace: bool = False) -> tuple[Digest, ...]:
        """Store files that are the blobs and do not change, as `upload` does; those of which the server says that it
        keeps what it had. After an error some are there: `missing` tells which.
        """
        ...
