"""A transport to a REAPI server: ContentAddressableStorage, ActionCache and ByteStream.

Small blobs are transferred in batches, larger ones in streams. A result that is read is in the server's encoding. The
server keeps unknown fields, and may add to known ones.
"""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.grpc import errors, messages
from mlcbuild.cache.remote.grpc.address import GrpcAddress
from mlcbuild.cache.remote.grpc.calls import Calls
from mlcbuild.cache.remote.grpc.errors import CallError
from mlcbuild.cache.remote.grpc.messages import Capabilities
from mlcbuild.cache.remote.transport import ErrorKind, OnSent, Sink, TransportError, ignore_progress

_SERVICE = "/build.bazel.remote.execution.v2"
GET_CAPABILITIES = f"{_SERVICE}.Capabilities/GetCapabilities"
FIND_MISSING = f"{_SERVICE}.ContentAddressableStorage/FindMissingBlobs"
BATCH_UPDATE = f"{_SERVICE}.ContentAddressableStorage/BatchUpdateBlobs"
BATCH_READ = f"{_SERVICE}.ContentAddressableStorage/BatchReadBlobs"
GET_RESULT = f"{_SERVICE}.ActionCache/GetActionResult"
UPDATE_RESULT = f"{_SERVICE}.ActionCache/UpdateActionResult"
READ = "/google.bytestream.ByteStream/Read"
WRITE = "/google.bytestream.ByteStream/Write"

# gRPC servers reject messages of more than 4 MiB, unless they are configured otherwise.
MOST_SENT_BYTES = (4 << 20) - (64 << 10)
MOST_BATCHED_BLOB_BYTES = 1 << 20
_AROUND_A_BLOB_BYTES = 128  # its digest, status and tags in a batch
_PIECE_BYTES = 1 << 19

T = TypeVar("T")


class GrpcTransport:
    """A BatchingTransport. It owns `calls`."""

    def __init__(
        self, address: GrpcAddress, function: DigestFunction, calls: Calls, capabilities: Capabilities
    ) -> None:
        self._address = address
        self._function = function
        self._calls = calls
        self._may_update_results = capabilities.may_update_results
        self._most_blob = capabilities.most_blob_bytes or sys.maxsize
        self._most_batched = min(capabilities.most_batched_bytes or MOST_SENT_BYTES, MOST_SENT_BYTES)

    @property
    def address(self) -> str:
        return str(self._address)

    @property
    def function(self) -> DigestFunction:
        return self._function

    @property
    def batched_bytes(self) -> int:
        return max(min(MOST_BATCHED_BLOB_BYTES, self._most_batched - _AROUND_A_BLOB_BYTES, self._most_blob), 0)

    # Blobs

    def missing(self, digests: Sequence[Digest]) -> tuple[Digest, ...]:
        asked = [digest for digest in dict.fromkeys(digests) if digest.size_bytes]
        doing = self._doing("FindMissingBlobs")
        absent: set[Digest] = set()
        items = ((messages.digest_item(digest), digest) for digest in asked)
        for batch in _batches(items, lambda item: len(item[0]), MOST_SENT_BYTES - (1 << 12)):
            request = messages.find_missing(self._address.instance, [item for item, _ in batch], self._function)
            answer = self._calls.unary(FIND_MISSING, request, doing, size_bytes=2 * len(request))
            absent.update(_understood(messages.missing_blobs, answer, doing))
        return tuple(digest for digest in asked if digest in absent)

    def download(self, digest: Digest, sink: Sink) -> bool:
        if digest.size_bytes <= self.batched_bytes:
            (_, content), *_ = self.download_many([digest])
            if content is not None and len(content) != digest.size_bytes:
                raise _wrong_length(self._doing(f"reading {digest}"), len(content), digest.size_bytes)
            if content:
                sink(content)
            return content is not None
        doing = self._doing(f"reading {digest}")
        request = messages.read_stream(self._address.blob_name(digest, self._function))
        received = 0
        with contextlib.closing(self._calls.read(READ, request, doing, size_bytes=digest.size_bytes)) as answers:
            try:
                for answer in answers:
                    piece = _understood(messages.read_data, answer, doing)
                    received += len(piece)
                    if received > digest.size_bytes:
                        break
                    if piece:
                        sink(piece)
            except CallError as error:
                if error.code == "NOT_FOUND" and not received:
                    return False
                raise
        if received != digest.size_bytes:
            raise _wrong_length(doing, received, digest.size_bytes)
        return True

    def download_many(self, digests: Sequence[Digest]) -> Iterator[tuple[Digest, bytes | None]]:
        doing = self._doing("BatchReadBlobs")
        self._check_small(digests)
        yield from ((digest, b"") for digest in digests if not digest.size_bytes)
        asked = [digest for digest in dict.fromkeys(digests) if digest.size_bytes]
        for batch in _batches(asked, lambda digest: digest.size_bytes + _AROUND_A_BLOB_BYTES, self._most_batched):
            items = [messages.digest_item(digest) for digest in batch]
            request = messages.batch_read(self._address.instance, items, self._function)
            size_bytes = sum(digest.size_bytes for digest in batch)
            answer = self._calls.unary(BATCH_READ, request, doing, size_bytes=size_bytes)
            answers = {one.digest: one for one in _understood(messages.read_blobs, answer, doing)}
            failure: TransportError | None = None
            for digest in batch:
                one = answers.get(digest)
                if one is None:
                    failure = TransportError(f"{doing}: no answer for {digest}", kind=ErrorKind.TRANSIENT)
                elif one.status.code == errors.CODES.index("NOT_FOUND"):
                    yield digest, None
                elif one.status.code:
                    failure = self._of_one(one, doing)
                else:
                    yield digest, one.content
            if failure is not None:
                raise failure

    def upload(self, digest: Digest, path: Path, *, replace: bool = False, on_sent: OnSent = ignore_progress) -> bool:
        """True also for a small blob that already existed, because the answer need not tell.

        `replace` has no effect: REAPI cannot replace a blob. A server may accept the bytes again, or answer at once
        that it has them.
        """
        if not digest.size_bytes:
            return False
        if digest.size_bytes <= self.batched_bytes:
            return not self.upload_many([(digest, path)], replace=replace)
        doing = self._doing(f"writing {digest}")
        if digest.size_bytes > self._most_blob:
            raise TransportError(f"{doing}: the server accepts at most {self._most_blob} bytes", kind=ErrorKind.ITEM)
        name = self._address.upload_name(digest, self._function, str(uuid.uuid4()))
        try:
            pieces = _pieces(name, digest, path, on_sent, self._calls.piece_bytes)
            answer, was_taken = self._calls.write(WRITE, pieces, doing, size_bytes=digest.size_bytes)
        except CallError as error:
            if error.code == "ALREADY_EXISTS":
                return False
            raise
        committed = _understood(messages.committed_size, answer, doing)
        if committed != digest.size_bytes:
            raise TransportError(
                f"{doing}: {committed} bytes were stored instead of {digest.size_bytes}", kind=ErrorKind.TRANSIENT
            )
        return was_taken

    def upload_many(
        self,
        blobs: Sequence[tuple[Digest, Path]],
        *,
        replace: bool = False,  # noqa: ARG002  # as in `upload`
    ) -> tuple[Digest, ...]:
        doing = self._doing("BatchUpdateBlobs")
        self._check_small([digest for digest, _ in blobs])
        kept = []
        asked = [(digest, path) for digest, path in dict(blobs).items() if digest.size_bytes]
        for batch in _batches(asked, lambda blob: blob[0].size_bytes + _AROUND_A_BLOB_BYTES, self._most_batched):
            items = [messages.update_item(digest, b"".join(_content(digest, path))) for digest, path in batch]
            request = messages.batch_update(self._address.instance, items, self._function)
            answer = self._calls.unary(BATCH_UPDATE, request, doing, size_bytes=len(request))
            answers = {one.digest: one for one in _understood(messages.updated_blobs, answer, doing)}
            for digest, _ in batch:
                one = answers.get(digest)
                if one is None:
                    raise TransportError(f"{doing}: no answer for {digest}", kind=ErrorKind.TRANSIENT)
                if one.status.code == errors.CODES.index("ALREADY_EXISTS"):
                    kept.append(digest)
                elif one.status.code:
                    raise self._of_one(one, doing)
        return tuple(kept)

    # Results

    def read_result(self, key: Digest) -> bytes | None:
        doing = self._doing(f"GetActionResult {key}")
        try:
            return self._calls.unary(
                GET_RESULT, messages.get_result(self._address.instance, key, self._function), doing
            )
        except CallError as error:
            if error.code == "NOT_FOUND":
                return None
            raise

    def write_result(self, key: Digest, data: bytes, *, replace: bool = False) -> bool:
        """Without `replace`, check first whether there is a result: REAPI has no conditional write."""
        doing = self._doing(f"UpdateActionResult {key}")
        if not self._may_update_results:
            raise TransportError(f"{doing}: this server accepts no results from clients", kind=ErrorKind.DENIED)
        if not replace and self.read_result(key) is not None:
            return False
        request = messages.update_result(self._address.instance, key, data, self._function)
        self._calls.unary(UPDATE_RESULT, request, doing, size_bytes=2 * len(request))
        return True

    def close(self) -> None:
        self._calls.close()

    # Inside

    def _doing(self, what: str) -> str:
        return f"{what} at {self.address}"

    def _of_one(self, one: messages.BlobAnswer, doing: str) -> CallError:
        code, status = one.status.code, one.status
        name = errors.CODES[code] if 0 <= code < len(errors.CODES) else "UNKNOWN"
        return errors.of_status(name, status.message, status.retry_after, f"{doing}: {one.digest}")

    def _check_small(self, digests: Sequence[Digest]) -> None:
        for digest in digests:
            if digest.size_bytes > self.batched_bytes:
                raise ValueError(f"{digest} is larger than {self.batched_bytes} bytes, the limit of a batch")


def _batches(items: Iterator[T] | Sequence[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Groups of items, in order, with a total size of at most `most`, or with a single item."""
    batch: list[T] = []
    total = 0
    for item in items:
        if batch and total + size(item) > most:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch


def _understood(decode: Callable[[bytes], T], data: bytes, doing: str) -> T:
    try:
        return decode(data)
    except ValueError as error:
        raise TransportError(f"{doing}: the answer cannot be understood: {error}", kind=ErrorKind.UNUSABLE) from None


def _content(digest: Digest, path: Path, piece_bytes: int = _PIECE_BYTES) -> Iterator[bytes]:
    """Pieces of the blob's file. Raises TransportError if it cannot be read or has another size."""
    left = digest.size_bytes
    try:
        with path.open("rb", buffering=0) as stream:
            while left and (piece := stream.read(min(left, piece_bytes))):
                left -= len(piece)
                yield piece
    except OSError as error:
        raise TransportError(
            f"sending {path}: it cannot be read: {error.strerror or error}", kind=ErrorKind.TRANSIENT
        ) from None
    if left:
        raise TransportError(
            f"sending {path}: it ends {left} bytes before its size of {digest.size_bytes}", kind=ErrorKind.TRANSIENT
        )


def _pieces(name: str, digest: Digest, path: Path, on_sent: OnSent, piece_bytes: int) -> Iterator[bytes]:
    """The messages of a Write call."""
    offset = 0
    for piece in _content(digest, path, piece_bytes):
        end = offset + len(piece)
        yield messages.write_piece("" if offset else name, offset, piece, is_last=end == digest.size_bytes)
        on_sent(len(piece))
        offset = end


def _wrong_length(doing: str, received: int, expected: int) -> TransportError:
    return TransportError(f"{doing}: received {received} bytes instead of {expected}", kind=ErrorKind.ITEM)
