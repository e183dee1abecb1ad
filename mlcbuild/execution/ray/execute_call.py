"""The call that has a node run an action: its message, and the small blobs that go with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.store import BlobMissingError
from mlcbuild.engine.executor import ExecutionRequest
from mlcbuild.execution.ray.frames import pack
from mlcbuild.execution.ray.messages import request_to_json
from mlcbuild.execution.ray.node import REQUEST_BYTES, SMALL_BYTES

CodeFiles = tuple[tuple[str, Digest], ...]


def code_files(request: ExecutionRequest, store: DiskStore, roots: Sequence[Path]) -> CodeFiles:
    """Put the workspace's files that a stage's code consists of into the store. Returns their paths and digests.

    Raises OSError and the errors of the store.
    """
    found = []
    for path in request.code:
        files = [root / path for root in roots if (root / path).is_file()]
        found += [(path, store.put_file(file)) for file in files[:1]]
    return tuple(found)


def execute_call(
    request: ExecutionRequest,
    code: CodeFiles,
    *,
    number: int,
    context: Mapping[str, Any],
    doubted: Iterable[Digest],
    store: DiskStore | None,
) -> bytes:
    """The payload of the call with this number. Small inputs go with it if there is a `store` to read them from."""
    head = {
        "call": "execute",
        "number": number,
        "context": context,
        "request": request_to_json(request),
        "code": [[path, str(digest)] for path, digest in code],
        "doubted": list(map(str, doubted)),
    }
    digests = {entry.digest for entry in request.inputs}.union(digest for _, digest in code)
    return pack(head, _small_blobs(digests, store) if store is not None else ())


def _small_blobs(digests: Iterable[Digest], store: DiskStore) -> list[bytes]:
    blobs = []
    room = REQUEST_BYTES
    for digest in sorted(digests, key=lambda digest: digest.size_bytes):
        if digest.size_bytes > min(SMALL_BYTES, room):
            break
        try:
            blobs.append(store.read(digest))
        except BlobMissingError:
            continue
        room -= digest.size_bytes
    return blobs
