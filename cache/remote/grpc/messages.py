"""Messages of the REAPI services that a cache needs, and of ByteStream.

Field numbers are those of `build/bazel/remote/execution/v2/remote_execution.proto`,
`google/bytestream/bytestream.proto` and `google/rpc/{status,error_details}.proto`. Decoders ignore unknown fields and
raise ValueError for bytes that are not the message. The digest function is set if it is not SHA-256, as REAPI requires.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from mlcbuild.cache import wire
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.reapi import AnyMessage, decode_digest, encode_digest

_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


def _function_field(number: int, function: DigestFunction) -> bytes:
    return b"" if function is DigestFunction.SHA256 else wire.integer_field(number, function.reapi_number)


@dataclass(frozen=True, kw_only=True)
class Status:
    """`google.rpc.Status {1 code, 2 message, 3 details}`. `retry_after` is RetryInfo's delay in seconds."""

    code: int = 0
    message: str = ""
    retry_after: float = 0.0

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        retry_after = 0.0
        for detail in wire.all_bytes(fields, 3):
            any_message = AnyMessage.decode(detail)
            if any_message.type_url == _RETRY_INFO:
                delay = wire.parse(wire.one_bytes(wire.parse(any_message.value), 1) or b"")
                retry_after = max(wire.one_integer(delay, 1) + wire.one_integer(delay, 2) / 1e9, 0.0)
        return cls(code=wire.one_integer(fields, 1), message=wire.one_text(fields, 2), retry_after=retry_after)


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """From `ServerCapabilities {1 cache_capabilities}`: `CacheCapabilities {1 digest_functions,
    2 action_cache_update_capabilities {1 update_enabled}, 4 max_batch_total_size_bytes, 8 max_cas_blob_size_bytes}`.
    """

    functions: frozenset[int]  # numbers of DigestFunction.Value
    may_update_results: bool
    most_batched_bytes: int  # 0: the server sets no limit
    most_blob_bytes: int = 0  # of one blob; 0: no limit

    @classmethod
    def decode(cls, data: bytes) -> Self:
        cache = wire.parse(wire.one_bytes(wire.parse(data), 1) or b"")
        return cls(
            functions=frozenset(wire.all_integers(cache, 1)),
            may_update_results=wire.one_flag(wire.parse(wire.one_bytes(cache, 2) or b""), 1),
            most_batched_bytes=wire.one_integer(cache, 4),
            most_blob_bytes=wire.one_integer(cache, 8),
        )


def get_capabilities(instance: str) -> bytes:
    """`GetCapabilitiesRequest {1 instance_name}`."""
    return wire.text_field(1, instance)


def digest_item(digest: Digest) -> bytes:
    """An item for `find_missing` or `batch_read`."""
    return wire.bytes_field(2, encode_digest(digest))


def find_missing(instance: str, items: Iterable[bytes], function: DigestFunction) -> bytes:
    """`FindMissingBlobsRequest {1 instance_name, 2 blob_digests, 3 digest_function}`."""
    return b"".join([wire.text_field(1, instance), *items, _function_field(3, function)])


def missing_blobs(data: bytes) -> list[Digest]:
    """`FindMissingBlobsResponse {2 missing_blob_digests}`."""
    return [decode_digest(item) for item in wire.all_bytes(wire.parse(data), 2)]


def update_item(digest: Digest, content: bytes) -> bytes:
    """An item for `batch_update`: `Request {1 digest, 2 data}`."""
    item = wire.bytes_field(1, encode_digest(digest)) + (wire.bytes_field(2, content) if content else b"")
    return wire.bytes_field(2, item)


def batch_update(instance: str, items: Iterable[bytes], function: DigestFunction) -> bytes:
    """`BatchUpdateBlobsRequest {1 instance_name, 2 requests, 5 digest_function}`."""
    return b"".join([wire.text_field(1, instance), *items, _function_field(5, function)])


def batch_read(instance: str, items: Iterable[bytes], function: DigestFunction) -> bytes:
    """`BatchReadBlobsRequest {1 instance_name, 2 digests, 4 digest_function}`."""
    return b"".join([wire.text_field(1, instance), *items, _function_field(4, function)])


@dataclass(frozen=True, kw_only=True)
class BlobAnswer:
    """One response in a batch."""

    digest: Digest
    content: bytes
    status: Status


def updated_blobs(data: bytes) -> list[BlobAnswer]:
    """`BatchUpdateBlobsResponse {1 responses {1 digest, 2 status}}`."""
    return [_blob_answer(item, content=0, status=2) for item in wire.all_bytes(wire.parse(data), 1)]


def read_blobs(data: bytes) -> list[BlobAnswer]:
    """`BatchReadBlobsResponse {1 responses {1 digest, 2 data, 3 status}}`."""
    return [_blob_answer(item, content=2, status=3) for item in wire.all_bytes(wire.parse(data), 1)]


def _blob_answer(data: bytes, *, content: int, status: int) -> BlobAnswer:
    fields = wire.parse(data)
    return BlobAnswer(
        digest=decode_digest(wire.one_bytes(fields, 1) or b""),
        content=(wire.one_bytes(fields, content) or b"") if content else b"",
        status=Status.decode(wire.one_bytes(fields, status) or b""),
    )


def get_result(instance: str, key: Digest, function: DigestFunction) -> bytes:
    """`GetActionResultRequest {1 instance_name, 2 action_digest, 6 digest_function}`."""
    return wire.text_field(1, instance) + digest_item(key) + _function_field(6, function)


def update_result(instance: str, key: Digest, result: bytes, function: DigestFunction) -> bytes:
    """`UpdateActionResultRequest {1 instance_name, 2 action_digest, 3 action_result, 5 digest_function}`."""
    return b"".join(
        [wire.text_field(1, instance), digest_item(key), wire.bytes_field(3, result), _function_field(5, function)]
    )


def read_stream(name: str) -> bytes:
    """`ReadRequest {1 resource_name}`, for the whole blob."""
    return wire.text_field(1, name)


def read_data(data: bytes) -> bytes:
    """`ReadResponse {10 data}`."""
    return wire.one_bytes(wire.parse(data), 10) or b""


def write_piece(name: str, offset: int, piece: bytes, *, is_last: bool) -> bytes:
    """`WriteRequest {1 resource_name, 2 write_offset, 3 finish_write, 10 data}`. Only the first needs the name."""
    return b"".join(
        [
            wire.text_field(1, name),
            wire.integer_field(2, offset),
            wire.integer_field(3, is_last),
            wire.bytes_field(10, piece) if piece else b"",
        ]
    )


def committed_size(data: bytes) -> int:
    """`WriteResponse {1 committed_size}`."""
    return wire.one_integer(wire.parse(data), 1)
