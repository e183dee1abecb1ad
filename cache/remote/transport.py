"""The interface to a server with blobs and results, over S3, HTTP or gRPC.

A transport makes each request once and verifies nothing. `RemoteStore` does retries, verification, inlining and
signatures, and decides when to go on without the server. Every method is thread-safe, has its own time limit, and
raises only `TransportError`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.errors import CacheError

Sink = Callable[[bytes], object]
"""Receives the bytes of a blob in order, in pieces. If it raises, the download ends and raises the same."""

OnSent = Callable[[int], object]
"""Called from any thread with the number of bytes just sent. Bytes that are sent again are reported again."""


def ignore_progress(_count: int) -> None:
    """Ignores progress."""


class ErrorKind(enum.Enum):
    """Kinds of errors, by what helps against them."""

    TRANSIENT = "transient"  # a later attempt: after a reset, a timeout, a truncated body, 429, 500 or 503
    DENIED = "denied"  # another setting: wrong credentials, missing permissions, an unknown host
    UNUSABLE = "unusable"  # nothing: the server lacks a feature, or its answer is not understood
    OFF = "off"  # a later request: the server was not asked, because it has failed too often
    ITEM = "item"  # nothing, but only this blob or result is affected: wrong size, wrong content, may not be replaced


class TransportError(CacheError):
    """A request failed. The message names the operation and the server, and contains no credential."""

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind,
        retry_after: float = 0.0,
        is_timeout: bool = False,
        advice: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, advice=advice)
        self.kind = kind
        self.is_timeout = is_timeout  # there was no answer in time, as opposed to a bad answer or a broken connection
        self.retry_after = retry_after  # seconds to wait, as the server asks; 0 if it does not


class DigestFunctionError(TransportError):
    """The server uses another digest function than the workspace. Only another setting helps."""

    def __init__(self, message: str, *, advice: tuple[str, ...] = ()) -> None:
        super().__init__(message, kind=ErrorKind.UNUSABLE, advice=advice)


class Transport(Protocol):
    """One place on one server (a bucket and prefix, a base address, an instance), with one digest function."""

    @property
    def address(self) -> str:
        """The address for messages, without credentials: `s3://bucket/prefix`."""
        ...

    @property
    def function(self) -> DigestFunction: ...

    def missing(self, digests: Sequence[Digest]) -> tuple[Digest, ...]:
        """Those of `digests` that the server does not have with the right size. Makes as few requests as possible."""
        ...

    def download(self, digest: Digest, sink: Sink) -> bool:
        """Pass the blob's bytes to `sink` in order, in bounded memory. False if the blob is absent.

        After an error, `sink` may have received a part of the bytes; another attempt begins at the first byte. A body
        of the wrong size is a TransportError.
        """
        ...

    def upload(self, digest: Digest, path: Path, *, replace: bool = False, on_sent: OnSent = ignore_progress) -> bool:
        """Upload a file, which is the blob and does not change. False if the server already has the blob.

        With `replace` the file replaces an existing blob, which may be damaged, if the server allows that. The bytes of
        a large blob are reported to `on_sent` while they are sent.
        """
        ...

    def read_result(self, key: Digest) -> bytes | None:
        """The encoded result of an action's key. None if there is none."""
        ...

    def write_result(self, key: Digest, data: bytes, *, replace: bool = False) -> bool:
        """Store an encoded result. Without `replace` an existing result stays, and the answer is False."""
        ...

    def close(self) -> None:
        """Close connections. Nothing may be called afterwards."""
        ...


class BatchingTransport(Transport, Protocol):
    """A transport that transfers many small blobs in one request. `remote.batches` works with the others too."""

    @property
    def batched_bytes(self) -> int:
        """The size of the largest blob that these methods accept. A larger one is a ValueError."""
        ...

    def download_many(self, digests: Sequence[Digest]) -> Iterator[tuple[Digest, bytes | None]]:
        """Each digest once, in any order, with the stored bytes, of whatever length; None if the blob is absent.

        After an error the pairs so far are valid. Another attempt should ask for the others.
        """
        ...

    def upload_many(self, blobs: Sequence[tuple[Digest, Path]], *, replace: bool = False) -> tuple[Digest, ...]:
        """Upload files like `upload`. Answer the blobs that the server already had.

        After an error some are uploaded; `missing` tells which.
        """
        ...
