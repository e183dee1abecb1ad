"""What running builds need of a store is written down, so that no eviction takes it from them.

::

    <base>/held/<host>.<namespace>.<process>.<random>   32-byte hashes of results and blobs, locked by its process
           locks/removal     shared by whoever writes a hash down, exclusive while something is removed
           locks/collection  exclusive: one collection at a time

A process writes a hash down before it looks whether the file is there; a collection looks into these files, under the
lock, before it removes anything. So whatever was seen there stays, and what was removed is not seen: a result is never
left without a blob that its build found stored. The files of processes that have ended are removed, but never during a
collection: what a build published since the collection looked is known from its file alone.

On a file system without locks nothing is certain, and a build that meets what has gone makes it again.
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

_HASH_BYTES = 32
_BELIEVED_SECONDS = 86_400  # how long a file of a process counts where no lock tells whether that lives
_TRIES = 5
_TRY_SECONDS = 0.02
_PATIENCE_SECONDS = 2.0  # for a collection that was stopped amid a removal: it looks again when it goes on
_POLL_SECONDS = 0.001
_FRESH_SECONDS = 1.0
_NAME = re.compile(r".+\.\d+\.\d+\.[0-9a-f]{16}", re.DOTALL)


class Holder:
    """Writes down what one process uses; safe to call from several threads.

    The file is made at the first hash and goes with the object or the process. A disk that cannot take it leaves the
    build without this protection, and nothing else. `unheld` need not be written down.
    """

    def __init__(self, base: Path, *, unheld: Iterable[str] = ()) -> None:
        self._base = base
        self._unheld = frozenset(unheld)
        self._held = set(self._unheld)
        self._mutex = threading.Lock()
        self._file = -1
        self._lock = -1
        self._end: Callable[[], object] = lambda: None

    def hold(self, hashes: Iterable[str]) -> None:
        """Keep results and blobs of these hashes from being removed; to be called before looking for them."""
        new = [digest_hash for digest_hash in hashes if digest_hash not in self._held]
        if not new:
            return
        with self._mutex, contextlib.suppress(OSError):
            if self._file < 0:
                self._open()
            until = time.monotonic() + _PATIENCE_SECONDS
            while not _flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB) and time.monotonic() < until:
                time.sleep(_POLL_SECONDS)
            try:
                _append(self._file, bytes.fromhex("".join(new)))
            finally:
                _flock(self._lock, fcntl.LOCK_UN)
            self._held.update(new)

    def release(self) -> None:
        """Let all go; what is needed after this is written down anew."""
        with self._mutex:
            self._end()
            self._file, self._held = -1, set(self._unheld)

    def _open(self) -> None:
        held = self._base / "held"
        held.mkdir(parents=True, exist_ok=True)
        lock = _open_lock(self._base, "removal")
        while True:
            path = held / f"{temporary_prefix()}{os.urandom(8).hex()}"
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
            _flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                break
            os.close(file)  # Somebody took it for that of a dead process, before it was locked.
        self._file, self._lock = file, lock
        self._end = weakref.finalize(self, _end, self._base, path, (file, lock), os.getpid())


class Holds:
    """What others hold, for the one that removes things, in several threads if it likes. Made by `collecting`."""

    def __init__(self, base: Path) -> None:
        self._held_folder = base / "held"
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
    def removing(self) -> Iterator[None]:
        """While nobody else can write anything down: all that is held is known, and what is not may be removed."""
        _flock(self._lock, fcntl.LOCK_EX)
        try:
            self._refresh()
            yield
        finally:
            _flock(self._lock, fcntl.LOCK_UN)

    def hashes(self) -> frozenset[str]:
        """All that was held when `removing` was entered last."""
        return frozenset(self._hashes)

    def close(self) -> None:
        os.close(self._lock)

    def _is_stale(self) -> bool:
        return time.monotonic() - self._refreshed > _FRESH_SECONDS

    def _refresh(self) -> None:
        began = time.monotonic()
        for name in _names_in(self._held_folder):
            start = self._read.get(name, 0)
            try:
                with (self._held_folder / name).open("rb", buffering=0) as stream:
                    stream.seek(start)
                    data = stream.readall()
            except OSError:
                continue
            whole = len(data) - len(data) % _HASH_BYTES
            self._read[name] = start + whole
            self._hashes.update(
                data[position : position + _HASH_BYTES].hex() for position in range(0, whole, _HASH_BYTES)
            )
        self._refreshed = began  # At last: other threads believe what is known as long as this is young.


@contextlib.contextmanager
def collecting(base: Path, *, waits: Callable[[], object] = lambda: None) -> Iterator[Holds]:
    """While no other collection runs in the store. Raises OSError; `waits` is called once where it takes long."""
    lock = _open_lock(base, "collection")
    try:
        for _ in range(_TRIES):
            if _flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB):
                break
            time.sleep(_TRY_SECONDS)  # A build that begins or ends has it for a moment.
        else:
            waits()
            _flock(lock, fcntl.LOCK_EX)
        _sweep(base)
        holds = Holds(base)
        try:
            yield holds
        finally:
            holds.close()
    finally:
        os.close(lock)


def remove_ended(base: Path) -> None:
    """Remove what processes that were killed left in `held/`, unless a collection runs."""
    if _names_in(base / "held"):
        with contextlib.suppress(OSError), _unless_collecting(base) as free:
            if free:
                _sweep(base)


def _end(base: Path, path: Path, descriptors: tuple[int, ...], process: int) -> None:
    if os.getpid() != process:
        return
    with contextlib.suppress(OSError), _unless_collecting(base) as free:
        if free:
            path.unlink(missing_ok=True)
    for descriptor in descriptors:
        os.close(descriptor)


@contextlib.contextmanager
def _unless_collecting(base: Path) -> Iterator[bool]:
    lock = _open_lock(base, "collection")
    try:
        yield _flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(lock)


def _sweep(base: Path) -> None:
    for name in _names_in(base / "held"):
        path = base / "held" / name
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
        return abs(time.time() - os.fstat(descriptor).st_mtime) < _BELIEVED_SECONDS
    return False


def _names_in(folder: Path) -> list[str]:
    """The files of holders; whatever else lies there is nobody's business here."""
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
    """For writing where that is allowed, which NFS wants of who locks: the file may be another user's."""
    try:
        return os.open(path, os.O_RDWR | flags, 0o666)
    except PermissionError:
        return os.open(path, os.O_RDONLY | flags & ~os.O_CREAT)


def _flock(descriptor: int, operation: int) -> bool:
    """False where another has the lock. A file system without locks lets everybody have it."""
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def _append(descriptor: int, data: bytes) -> None:
    """Raises OSError where the disk takes only a part, of which nothing is then left."""
    written = os.write(descriptor, data)
    if written != len(data):
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
