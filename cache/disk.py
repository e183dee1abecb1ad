"""The store on this machine's disk: blobs and results, in one folder per digest function.

::

    <root>/v1/<function>/cas/<2>/<hash>        a blob, mode 0444, exactly its bytes
                         ac/<2>/<hash>         an encoded ActionResult, then its XXH3-128 (16 bytes)
                         checksums/<2>/<hash>  a blob's XXH3-128, where files have no extended attributes
                         tmp/                  files that are being written
                         corrupt/              files that failed their check, kept for inspection
                         leases/, locks/       what running builds use (see `mlcbuild.cache.leases`)

A blob is written to `tmp/` and renamed. So each file under `cas/` was once complete, and its checksum finds later
damage. Results, `put_bytes` and `receive` flush it to the disk before. `put_file` does not: a file of the workspace or
of an action can be made again, and builds of gigabytes would mostly wait for the disk. What a power failure takes of it
is missing, shorter, or found by its checksum. Blobs are never executable: the executable bit is set on copies.
"""

# ruff: noqa: PTH103, PTH104, PTH108, PTH116, PTH120, PTH123
# Paths are strings here, because creating a Path costs more than the system call it is used for.

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from mlcbuild.cache import integrity
from mlcbuild.cache.blob_writer import BlobWriter
from mlcbuild.cache.copying import clone_or_copy
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.last_use import mark_used
from mlcbuild.cache.leases import Lease, remove_expired
from mlcbuild.cache.quarantine import make_room, remove, set_aside
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.store import BlobMissingError
from mlcbuild.cache.temporaries import remove_abandoned, temporary_prefix
from mlcbuild.errors import CacheError, InfrastructureError, LocalEnvironmentError
from mlcbuild.regular_files import open_regular

LAYOUT_VERSION = "v1"
BLOB_MODE = 0o444
_CHUNK_BYTES = 256 << 10
_SMALL_BYTES = 4096
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO)  # ENXIO: a socket
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


_DENIED = (errno.EROFS, errno.EACCES, errno.EPERM)


def default_root() -> Path:
    """`$XDG_CACHE_HOME/mlcbuild`, by default `~/.cache/mlcbuild`. A relative `XDG_CACHE_HOME` is ignored."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "mlcbuild"


def disk_error(error: OSError, path: Path, doing: str) -> InfrastructureError:
    """The error to raise for a failed file operation. For a full disk it says what to do."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return LocalEnvironmentError(
            f"no space left while {doing} {path}: {reason}",
            advice=(
                "free some space on that file system, or move the cache: set XDG_CACHE_HOME to another disk",
                "no incomplete file was kept; run the same command again to continue",
            ),
        )
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return CacheError(
            f"{doing} {path} failed: {reason}",
            advice=(f"there must be a folder in {error.filename or path}: move away what is there instead",),
        )
    return CacheError(
        f"{doing} {path} failed: {reason}",
        advice=("check the owner and mode of that path, or set XDG_CACHE_HOME to a folder you can write",),
    )


class DiskStore:
    """A LocalBlobStore and an ActionCache below `root`. Creates its folders; raises CacheError if it cannot.

    Opened `to_read` alone it need not be writable; one that is not there then has nothing.
    """

    def __init__(self, root: Path, function: DigestFunction, *, to_read: bool = False) -> None:
        self.root = root
        self._function = function
        self._base = root / LAYOUT_VERSION / function.value
        self._blobs = f"{self._base}/cas"
        self._results = f"{self._base}/ac"
        self._checksums = self._base / "checksums"
        self._temporary = self._base / "tmp"
        self._empty = function.of_bytes(b"")
        self._lease = Lease(self._base, exempt=[self._empty.hash])
        # Hash → stat of each blob that this process has verified. It is verified again only after the stat changes.
        self._verified: dict[str, tuple[int, ...]] = {}
        self._prefix = temporary_prefix()
        try:
            for folder in (self._blobs, self._results, self._temporary):
                Path(folder).mkdir(parents=True, exist_ok=True)
            remove_abandoned(self._temporary)
            remove_expired(self._base)
        except OSError as error:
            if to_read and error.errno in _DENIED:
                return
            raise disk_error(error, self._base, "creating the store") from error
        self.put_bytes(b"", durable=False)

    @property
    def function(self) -> DigestFunction:
        return self._function

    def release(self) -> None:
        """Allow the eviction of everything that was stored or looked up so far."""
        self._lease.release()

    # Blobs

    def missing(self, digests: Iterable[Digest]) -> tuple[Digest, ...]:
        wanted = dict.fromkeys(digests)
        self._lease.add(digest.hash for digest in wanted)
        return tuple(digest for digest in wanted if not self._has(digest))

    def read(self, digest: Digest) -> bytes:
        if digest == self._empty:
            return b""
        with self._open_verified(digest) as stream:
            try:
                data = stream.read()
            except OSError as error:
                raise disk_error(error, Path(self._blob(digest.hash)), "reading") from error
        if len(data) != digest.size_bytes:
            raise BlobMissingError(digest, reason="changed while it was read")
        return data

    def open(self, digest: Digest) -> BinaryIO:
        return self._open_verified(digest)

    def path_of(self, digest: Digest) -> Path:
        if digest == self._empty and not self._has(digest):
            self.put_bytes(b"", durable=False)
        self._lease.add([digest.hash])
        self._open_verified(digest).close()
        return Path(self._blob(digest.hash))

    def put_bytes(self, data: bytes, *, durable: bool = True) -> Digest:
        digest = self._function.of_bytes(data)
        self._lease.add([digest.hash])
        if self._is_stored(digest):
            return digest
        with self._temporary_file() as temporary:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _write_all(descriptor, data)
                self._seal(descriptor, digest, integrity.checksum_of_bytes(data), durable=durable)
            finally:
                os.close(descriptor)
            self._rename(temporary, self._blob(digest.hash))
        return digest

    def put_file(self, path: Path, *, move: bool = False) -> Digest:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError(f"not a regular file: {str(path)!r}")
        with self._temporary_file() as temporary:
            if not (move and _moved(path, temporary)):
                with os.fdopen(open_regular(path), "rb", buffering=0) as source:
                    clone_or_copy(source.fileno(), temporary)
            descriptor = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
            try:
                modified = os.fstat(descriptor).st_mtime_ns
                digest, checksum = self._hash(descriptor)
                self._lease.add([digest.hash])
                if not self._is_stored(digest):
                    os.fchmod(descriptor, 0o600)
                    self._seal(descriptor, digest, checksum, durable=False)
                    self._rename(temporary, self._blob(digest.hash))
                    status = os.fstat(descriptor)
                    if status.st_mtime_ns == modified:  # Nobody wrote to it since its bytes were read.
                        self._verified[digest.hash] = _identity(status)
            finally:
                os.close(descriptor)
        if move:
            path.unlink(missing_ok=True)
        return digest

    @contextlib.contextmanager
    def receive(self, digest: Digest) -> Iterator[BlobWriter]:
        self._lease.add([digest.hash])
        with self._temporary_file() as temporary:
            reception = BlobWriter(temporary, digest, self._function)
            try:
                yield reception
                if reception.is_complete and not self._is_stored(digest):
                    self._seal(reception.descriptor, digest, reception.checksum, durable=True)
                    self._rename(temporary, self._blob(digest.hash))
            finally:
                reception.close()

    # Results

    def get(self, key: Digest) -> ActionResult | None:
        path = self._result(key.hash)
        self._lease.add([key.hash])
        try:
            data = _read_all(path)
        except IsADirectoryError:
            data = b""
        except OSError:  # It may be intact, as when this process has too many open files.
            return None
        body, checksum = data[: -integrity.CHECKSUM_BYTES], data[-integrity.CHECKSUM_BYTES :]
        try:
            if len(checksum) == integrity.CHECKSUM_BYTES and integrity.checksum_of_bytes(body) == checksum:
                result = ActionResult.decode(body)
                mark_used(path)
                return result
        except ValueError:
            pass
        remove(Path(path))
        return None

    def contains(self, key: Digest) -> bool:
        self._lease.add([key.hash])
        return mark_used(self._result(key.hash))

    def protect(self, keys: Iterable[Digest]) -> None:
        self._lease.add(key.hash for key in keys)

    def result_path(self, key_hash: str) -> str:
        """The path of the result's file, whether it exists or not."""
        return self._result(key_hash)

    def put(self, key: Digest, result: ActionResult) -> None:
        if result.exit_code != 0:
            raise ValueError(
                f"the result of {key} has exit code {result.exit_code}: only successful results are stored"
            )
        body = result.encode()
        self._lease.add([key.hash])
        with self._temporary_file() as temporary:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                _write_all(descriptor, body + integrity.checksum_of_bytes(body))
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
            self._rename(temporary, self._result(key.hash))

    # Inside

    def _blob(self, digest_hash: str) -> str:
        return f"{self._blobs}/{digest_hash[:2]}/{digest_hash}"

    def _result(self, digest_hash: str) -> str:
        return f"{self._results}/{digest_hash[:2]}/{digest_hash}"

    def _checksum(self, digest_hash: str) -> str:
        return f"{self._checksums}/{digest_hash[:2]}/{digest_hash}"

    def _has(self, digest: Digest) -> bool:
        return digest == self._empty or self._is_stored(digest)

    def _is_stored(self, digest: Digest) -> bool:
        try:
            status = os.stat(self._blob(digest.hash))
        except OSError:
            return False
        return status.st_size == digest.size_bytes and stat.S_ISREG(status.st_mode)

    def _open_verified(self, digest: Digest) -> BinaryIO:
        path = self._blob(digest.hash)
        if digest == self._empty and not self._is_stored(digest):
            self.put_bytes(b"", durable=False)
        try:
            descriptor = open_regular(path)
        except OSError as error:
            if error.errno in _NO_FILE:
                raise BlobMissingError(digest) from None
            raise disk_error(error, Path(path), "reading") from error
        stream = open(descriptor, "rb", buffering=0)  # noqa: SIM115
        try:
            if not self._verify(stream.fileno(), digest):
                raise BlobMissingError(digest, reason="was damaged on disk and is in quarantine")
        except BaseException:
            stream.close()
            raise
        return stream

    def _verify(self, descriptor: int, digest: Digest) -> bool:
        """Whether an open blob is undamaged. A damaged one is moved to `corrupt/`."""
        try:
            status = os.fstat(descriptor)
            identity = _identity(status)
            if self._verified.get(digest.hash) == identity:
                return status.st_size == digest.size_bytes
            recorded = integrity.read_recorded(descriptor, self._checksum(digest.hash))
            if recorded is None:
                # A copy of the store without extended attributes has no checksums. The name still proves the content.
                intact = self._hash(descriptor)[0].hash == digest.hash
                os.lseek(descriptor, 0, os.SEEK_SET)
            else:
                intact = integrity.checksum_of_file(descriptor) == recorded
        except OSError as error:
            if error.errno != errno.EIO:
                raise disk_error(error, Path(self._blob(digest.hash)), "reading") from error
            intact = False
        if not intact:
            self.quarantine(digest.hash)
            return False
        self._verified[digest.hash] = identity
        return status.st_size == digest.size_bytes

    def quarantine(self, digest_hash: str) -> None:
        """Move a damaged blob to `corrupt/`, so that its action runs again."""
        self._verified.pop(digest_hash, None)
        set_aside(self._base, Path(self._blob(digest_hash)))
        with contextlib.suppress(OSError):
            os.unlink(self._checksum(digest_hash))

    def _hash(self, descriptor: int) -> tuple[Digest, bytes]:
        """Digest and checksum in one pass over an open file."""
        import xxhash

        hasher, checksum, size = self._function.hasher(), xxhash.xxh3_128(), 0
        os.lseek(descriptor, 0, os.SEEK_SET)
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            hasher.update(chunk)
            checksum.update(chunk)
            size += len(chunk)
        return Digest(hasher.hexdigest(), size), checksum.digest()

    def _seal(self, descriptor: int, digest: Digest, checksum: bytes, *, durable: bool) -> None:
        """Write the checksum, remove write permission, and wait for the disk."""
        if not integrity.write_attribute(descriptor, checksum):
            with self._temporary_file() as temporary:
                Path(temporary).write_bytes(checksum)
                self._rename(temporary, self._checksum(digest.hash))
        os.fchmod(descriptor, BLOB_MODE)
        if durable:
            os.fdatasync(descriptor)

    @contextlib.contextmanager
    def _temporary_file(self) -> Iterator[str]:
        """An unused path in `tmp/`. A file that is still there at the end is deleted."""
        path = f"{self._temporary}/{self._prefix}{os.urandom(8).hex()}"
        try:
            yield path
        except OSError as error:
            raise disk_error(error, self._base, "writing to the store") from error
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _rename(self, temporary: str, path: str) -> None:
        try:
            os.rename(temporary, path)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError, FileExistsError):
            make_room(self._base, Path(path))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.rename(temporary, path)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file is written to, or replaced."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _moved(path: Path, temporary: str) -> bool:
    """Rename a file into the store. False if it must be copied: other file system, or more than one hard link."""
    if path.is_symlink() or path.stat().st_nlink != 1:
        return False
    try:
        os.rename(path, temporary)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EACCES):
            return False
        raise
    return True


def _read_all(path: str) -> bytes:
    """The content of a file that is usually small enough for one read. Raises OSError if it is no regular file."""
    descriptor = open_regular(path)
    try:
        pieces = [os.read(descriptor, _SMALL_BYTES)]
        while pieces[-1]:
            pieces.append(os.read(descriptor, _CHUNK_BYTES))
    finally:
        os.close(descriptor)
    return b"".join(pieces)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
