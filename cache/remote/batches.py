"""Transfers of many small blobs in as few requests as the transport allows: in batches, or else one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeGuard

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.remote.transport import BatchingTransport, ErrorKind, Transport, TransportError

MOST_SINGLE_BYTES = 1 << 20  # the largest blob that is read into memory without batches


def batched_bytes(transport: Transport) -> int:
    """The size of the largest blob that the functions below accept."""
    return transport.batched_bytes if has_batches(transport) else MOST_SINGLE_BYTES


def download_many(transport: Transport, digests: Sequence[Digest]) -> Iterator[tuple[Digest, bytes | None]]:
    """Like `BatchingTransport.download_many`."""
    if has_batches(transport):
        yield from transport.download_many(digests)
        return
    _check_small(digests)
    for digest in dict.fromkeys(digests):
        received: list[bytes] = []
        try:
            is_there = transport.download(digest, received.append)
        except TransportError as error:
            if error.kind is not ErrorKind.ITEM:
                raise
            is_there = True  # What was received, if anything, is not the blob.
        yield digest, b"".join(received) if is_there else None


def upload_many(
    transport: Transport, blobs: Sequence[tuple[Digest, Path]], *, replace: bool = False
) -> tuple[Digest, ...]:
    """Like `BatchingTransport.upload_many`."""
    if has_batches(transport):
        return transport.upload_many(blobs, replace=replace)
    _check_small([digest for digest, _ in blobs])
    return tuple(digest for digest, path in dict(blobs).items() if not transport.upload(digest, path, replace=replace))


def has_batches(transport: Transport) -> TypeGuard[BatchingTransport]:
    """Whether the transport transfers many blobs in one request."""
    return hasattr(transport, "download_many")


def _check_small(digests: Sequence[Digest]) -> None:
    for digest in digests:
        if digest.size_bytes > MOST_SINGLE_BYTES:
            raise ValueError(f"{digest} is larger than {MOST_SINGLE_BYTES} bytes")
