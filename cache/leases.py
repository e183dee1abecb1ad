"""Leases: running builds list the results and blobs that they use, so that no garbage collection removes them.

::

    <base>/leases/<host>.<namespace>.<process>.<random>   32-byte hashes of results and blobs, locked by its process
           locks/removal     shared while a hash is added to a lease, exclusive while something is removed
           locks/collection  exclusive: one collection at a time

A process adds a hash to its lease before it checks whether the file exists. A collection reads all leases, with the
removal lock, before it removes anything. So a file that a build has seen stays, and a build does not see a file that
was removed: a build never finds a result whose blobs go afterwards. Leases of dead processes are deleted, but not
during a collection: the lease is the only trace of what a build has published since the collection read the store.

On a file system without locks nothing is guaranteed. A build that finds something removed makes it again.
"""

# Paths are strings here: making a Path costs more than the system call that it is for.

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from mlcbuild.cache.temporaries import temporary_prefix
from mlcbuild.regular_files import open_regular

FOLDER = "leases"  # in the folder of a store
_HASH_BYTES = 32
_EXPIRY_SECONDS = 86_400  # how long a lease is valid where no lock shows whether its process is alive
_TRIES = 5
_TRY_SECONDS = 0.02
_LOCK_TIMEOUT_SECONDS = 2.0  # A collection that was stopped during a removal reads the leases again when it goes on.
_POLL_SECONDS = 0.001
_FRESH_SECONDS = 1.0
_NAME = re.compile(r".+\.\d+\.\d+\.[0-9a-f]{16}", re.DOTALL)


class Lease:
    """The hashes that one process protects. Safe to call from several threads.

    The file is created for the first hash and deleted with the object or after the process. If the disk cannot take it,
    the build goes on without this protection. Hashes in `exempt` are never added.
    """

    def __init__(self, base: Path, *, exempt: Iterable[str] = ()) -> None:
        self._base = base
        self._exempt = frozenset(exempt)
        self._hashes = set(self._exempt)
        self._mutex = threading.Lock()
        self._file = -1
        self._lock = -1
        self._end: Callable[[], object] = lambda: None

    def add(self, hashes: Iterable[str]) -> None:
        """Protect results and blobs of these hashes. Call this before checking whether they exist."""
        new = [digest_hash for digest_hash in hashes if digest_hash not in self._hashes]
        if not new:
            return
        with self._mutex, contextlib.suppress(OSError):
            if self._file < 0:
                self._open()
            until = time.monotonic() + _LOCK_TIMEOUT_SECONDS
            while not _flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB) and time.monotonic() < until:
                time.sleep(_POLL_SECONDS)
            try:
                _append(self._file, bytes.fromhex("".join(new)))
            finally:
                _flock(self._lock, fcntl.LOCK_UN)
            self._hashes.update(new)

    def release(self) -> None:
        """Protect nothing any more. What is needed later has to be added again."""
        with self._mutex:
            self._end()
            self._file, self._hashes = -1, set(self._exempt)

    def _open(self) -> None:
        folder = self._base / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        lock = _open_lock(self._base, "removal")
        while True:
            path = folder / f"{temporary_prefix()}{os.urandom(8).hex()}"
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
            _flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                break
            os.close(file)  # Another process deleted it before it was locked, as the lease of a dead process.
        self._file, self._lock = file, lock
        self._end = weakref.finalize(self, _end, self._base, path, (file, lock), os.getpid())


class Leases:
    """The leases of all processes, for a collection. Thread-safe. `collection_lock` makes it."""

    def __init__(self, base: Path) -> None:
        self._folder = base / FOLDER
        self._lock = _open_lock(base, "removal")
        self._read: dict[str, int] = {}
        self._hashes: set[str] = set()
        self._refreshed = 0.0
        self._mutex = threading.Lock()

    def __contains__(self, digest_hash: object) -> bool:
        if self._is_stale():
            with self._mutex:
                if self._is_stale():
                    self._refresh()
        return digest_hash in self._hashes

    @contextlib.contextmanager
    def removal_lock(self) -> Iterator[None]:
        """While it is held no process can add a hash: what no lease lists may be removed."""
        _flock(self._lock, fcntl.LOCK_EX)
        try:
            self._refresh()
            yield
        finally:
            _flock(self._lock, fcntl.LOCK_UN)

    def hashes(self) -> frozenset[str]:
        """All hashes that leases listed when `removal_lock` was taken last."""
        return frozenset(self._hashes)

    def close(self) -> None:
        os.close(self._lock)

    def _is_stale(self) -> bool:
        return time.monotonic() - self._refreshed > _FRESH_SECONDS

    def _refresh(self) -> None:
        began = time.monotonic()
        for name in _names_in(self._folder):
            start = self._read.get(name, 0)
            try:
                with os.fdopen(open_regular(self._folder / name), "rb", buffering=0) as stream:
                    stream.seek(start)
                    data = stream.readall()
            except OSError:
                continue
            whole = len(data) - len(data) % _HASH_BYTES
            self._read[name] = start + whole
            self._hashes.update(
                data[position : position + _HASH_BYTES].hex() for position in range(0, whole, _HASH_BYTES)
            )
        self._refreshed = began  # Last, because other threads use `_hashes` unread while this is recent.


@contextlib.contextmanager
def collection_lock(base: Path, *, on_wait: Callable[[], object] = lambda: None) -> Iterator[Leases]:
    """While it is held no other collection runs in the store. `on_wait` is called once if another one does.

    Raises OSError.
    """
    lock = _open_lock(base, "collection")
    try:
        for _ in range(_TRIES):
            if _flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB):
                break
            time.sleep(_TRY_SECONDS)  # A build holds it for a moment when it starts and ends.
        else:
            on_wait()
            _flock(lock, fcntl.LOCK_EX)
        _sweep(base)
        leases = Leases(base)
        try:
            yield leases
        finally:
            leases.close()
    finally:
        os.close(lock)


def remove_expired(base: Path) -> None:
    """Delete the leases of processes that were killed, unless a collection runs."""
    if _names_in(base / FOLDER):
        with contextlib.suppress(OSError), _try_collection_lock(base) as free:
            if free:
                _sweep(base)


def _end(base: Path, path: Path, descriptors: tuple[int, ...], process: int) -> None:
    if os.getpid() != process:
        return
    with contextlib.suppress(OSError), _try_collection_lock(base) as free:
        if free:
            path.unlink(missing_ok=True)
    for descriptor in descriptors:
        os.close(descriptor)


@contextlib.contextmanager
def _try_collection_lock(base: Path) -> Iterator[bool]:
    lock = _open_lock(base, "collection")
    try:
        yield _flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(lock)


def _sweep(base: Path) -> None:
    for name in _names_in(base / FOLDER):
        path = base / FOLDER / name
        with contextlib.suppress(OSError):
            descriptor = _open_to_lock(path, os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if not _is_live(descriptor):
                    path.unlink()
            finally:
                os.close(descriptor)


def _is_live(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return True
        return abs(time.time() - os.fstat(descriptor).st_mtime) < _EXPIRY_SECONDS
    return False


def _names_in(folder: Path) -> list[str]:
    """The names of leases in the folder; other files are ignored."""
    try:
        return [name for name in os.listdir(folder) if _NAME.fullmatch(name)]  # noqa: PTH208
    except OSError:
        return []


def _open_lock(base: Path, name: str) -> int:
    path = base / "locks" / name
    flags = os.O_CREAT | os.O_CLOEXEC
    try:
        return _open_to_lock(path, flags)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _open_to_lock(path, flags)


def _open_to_lock(path: Path, flags: int) -> int:
    """Open for writing if that is allowed, because NFS needs it for locks. The file may belong to another user."""
    try:
        return open_regular(path, os.O_RDWR | flags)
    except PermissionError:
        return open_regular(path, os.O_RDONLY | flags & ~os.O_CREAT)


def _flock(descriptor: int, operation: int) -> bool:
    """Whether the lock was taken; False if another process has it. True on a file system without locks."""
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def _append(descriptor: int, data: bytes) -> None:
    """Append all of `data`. Raises OSError, and appends nothing, if the disk takes only a part."""
    written = os.write(descriptor, data)
    if written != len(data):
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
