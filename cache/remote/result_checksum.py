"""A checksum of a result, by which a reader finds that a server has changed it.

Outputs are named by their digests, but nothing else proves the rest of a result: paths, executable bits, the worker.
The checksum is one `google.protobuf.Any` in the result's `execution_metadata.auxiliary_metadata`, REAPI's place for
data that a server need not understand::

    type_url "type.mlcbuild.dev/ResultChecksum", value the digest's hash (32 bytes) of the statement

The statement is a line, and a message::

    {1 the key's hash, 2 the result in canonical encoding, without checksums}

So a result that is stored under another key, or that differs in anything that is read of it, is invalid, signatures
included. It finds damage. It is no defence against somebody who can write to the cache; signatures are.
"""

from __future__ import annotations

import dataclasses

from mlcbuild.cache import wire
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.reapi import ActionResult, AnyMessage, ExecutedActionMetadata

CHECKSUM_TYPE_URL = "type.mlcbuild.dev/ResultChecksum"

_FIRST_LINE = b"mlcbuild result checksum 1\n"


def with_checksum(key: Digest, result: ActionResult, function: DigestFunction) -> ActionResult:
    """The result with its checksum instead of any others."""
    bare = without_checksum(result)
    metadata = bare.execution_metadata or ExecutedActionMetadata()
    checksum = AnyMessage(type_url=CHECKSUM_TYPE_URL, value=_checksum(key, bare, function))
    return _with_metadata(bare, metadata, (*metadata.auxiliary_metadata, checksum))


def has_right_checksum(key: Digest, result: ActionResult, function: DigestFunction) -> bool:
    """Whether the result has exactly one checksum, and it is that of this result."""
    metadata = result.execution_metadata
    found = [item.value for item in metadata.auxiliary_metadata if _is_checksum(item)] if metadata else []
    return found == [_checksum(key, without_checksum(result), function)]


def without_checksum(result: ActionResult) -> ActionResult:
    """The result as it was before. Metadata without other content is removed, as a checksum may have added it."""
    metadata = result.execution_metadata
    if metadata is None:
        return result
    return _with_metadata(
        result, metadata, tuple(item for item in metadata.auxiliary_metadata if not _is_checksum(item))
    )


def _is_checksum(item: AnyMessage) -> bool:
    return item.type_url == CHECKSUM_TYPE_URL


def _with_metadata(
    result: ActionResult, metadata: ExecutedActionMetadata, auxiliary: tuple[AnyMessage, ...]
) -> ActionResult:
    metadata = dataclasses.replace(metadata, auxiliary_metadata=auxiliary)
    return dataclasses.replace(result, execution_metadata=None if metadata == ExecutedActionMetadata() else metadata)


def _checksum(key: Digest, bare: ActionResult, function: DigestFunction) -> bytes:
    statement = b"".join(
        [
            _FIRST_LINE,
            wire.bytes_field(1, bytes.fromhex(key.hash)),
            wire.bytes_field(2, bare.encode()),
        ]
    )
    return bytes.fromhex(function.of_bytes(statement).hash)
