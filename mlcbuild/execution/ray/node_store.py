"""Where a node keeps blobs: in the build's own store, if the node can reach it, and otherwise in one of its own."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.disk import DiskStore, default_root, disk_error
from mlcbuild.cache.store import BlobMissingError

VARIABLE = "MLCBUILD_NODE_STORE"
_IDENTITY = "identity"


def identity_of(root: Path) -> str:
    """The identity of the store in a directory, which differs from that of a store in the same path on another machine.

    The first call writes it. Raises InfrastructureError.
    """
    file = root / _IDENTITY
    try:
        try:
            return file.read_text()
        except FileNotFoundError:
            temporary = root / f".{_IDENTITY}.{uuid.uuid4().hex}"
            temporary.write_text(uuid.uuid4().hex)
            try:
                os.link(temporary, file)  # Of several writers, the first one wins.
            except FileExistsError:
                pass
            finally:
                temporary.unlink()
            return file.read_text()
    except OSError as error:
        raise disk_error(error, file, "writing") from error


def root_on_node(builds_root: str, identity: str) -> tuple[Path, bool]:
    """The directory of the node's store, and whether it is the build's own store, which lies in `builds_root`.

    A directory that the node's environment names is used in any case.
    """
    named = os.environ.get(VARIABLE, "")
    if named:
        return Path(named), False
    try:
        if (Path(builds_root) / _IDENTITY).read_text() == identity and os.access(builds_root, os.W_OK):
            return Path(builds_root), True
    except OSError:
        pass
    return default_root(), False


class Incoming:
    """Blobs that arrive at a node in pieces, in any order and through several of its processes. Each has a file."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "incoming"

    def write(self, digest: Digest, offset: int, data: bytes) -> None:
        """Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._folder / str(digest.hash), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(data)
            while view:
                written = os.pwrite(descriptor, view, offset)
                view, offset = view[written:], offset + written
        finally:
            os.close(descriptor)

    def finish(self, digest: Digest, store: DiskStore) -> bool:
        """Put a blob whose pieces have all arrived into the store. Returns False if they are not that blob."""
        if store.missing((digest,)):
            try:
                return store.put_file(self._folder / digest.hash, move=True) == digest
            except FileNotFoundError:
                return not store.missing((digest,))
        (self._folder / digest.hash).unlink(missing_ok=True)
        return True


def piece_of(store: DiskStore, digest: Digest, offset: int, size: int) -> bytes:
    """Raises BlobMissingError, and the other errors of the store."""
    with store.open(digest) as stream:
        stream.seek(offset)
        data = stream.read(size)
    if len(data) != min(size, digest.size_bytes - offset):
        raise BlobMissingError(digest, reason="was cut short while it was read")
    return data
