"""The disk cache: its place, owner, free space, abilities of its file system, and speed.

Checks write to their own store in a folder below the cache, which is removed at the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import statistics
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from mlcbuild.cache import integrity
from mlcbuild.cache.copying import clone_or_copy
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore, disk_error
from mlcbuild.cache.file_systems import file_system_of
from mlcbuild.cache.inventory import bases
from mlcbuild.doctor.check import Check
from mlcbuild.doctor.finding import Figure, Finding, failed, ok, warning
from mlcbuild.figures import byte_count, duration, transfer_rate

LITTLE_SPACE = 10_000_000_000
NO_SPACE = 1_000_000_000
LITTLE_SHARE = 0.02
BIG_BYTES = 64 << 20
SMALL_BYTES = 4 << 10
_SMALL_WRITES = 15
_SLOW_WRITE = 0.1  # seconds: more than a hard disk needs for a write with two flushes
_SLOW_PACE = 30_000_000  # bytes a second
_TELLING_BYTES = 32 << 20  # with fewer bytes the flush dominates
_MOST_SKEW = 2.0  # seconds: builds do not trust the dates of files younger than this
_FOLDER = "doctor"
_OLD_SECONDS = 86_400.0
_SPEED_SECONDS = 90.0
_ELSEWHERE = "to use another disk, set XDG_CACHE_HOME or give --disk-cache"
_HANGS = ("the file server may not answer: check the mount", _ELSEWHERE)


def disk_checks(root: Path, function: DigestFunction) -> Sequence[Check]:
    return (
        Check(name="place", examine=lambda: place(root), if_silent=_HANGS),
        Check(name="owner", examine=lambda: owner(root), if_silent=_HANGS),
        Check(name="space", examine=lambda: space(root), if_silent=_HANGS),
        Check(name="abilities", examine=lambda: abilities(root), if_silent=_HANGS),
        Check(name="clock", examine=lambda: clock(root), if_silent=_HANGS),
        Check(name="small writes", examine=lambda: small_writes(root, function), if_silent=_HANGS, seconds=60.0),
        Check(
            name="throughput",
            examine=lambda: throughput(root, function, size=BIG_BYTES),
            if_silent=_HANGS,
            seconds=_SPEED_SECONDS,
        ),
        Check(name="contents", examine=lambda: contents(root), if_silent=_HANGS),
    )


def place(root: Path) -> Finding:
    found = file_system_of(root)
    figures: dict[str, Figure] = {"path": str(root), "file_system": found.kind, "is_network": found.is_network}
    measured = f"{root} ({found.kind})" + ("" if root.exists() else ", which the first build creates")
    if root.exists() and not root.is_dir():
        return failed(f"{root} is not a folder", _ELSEWHERE, **figures)
    if found.is_network:
        advice = "share results by a remote cache, and keep the disk cache on a local disk"
        return warning(
            f"{measured}, a network file system: slower, with less reliable locks", advice, _ELSEWHERE, **figures
        )
    if found.kind in ("tmpfs", "ramfs"):
        return warning(f"{measured}, in memory: it is lost at the next restart", _ELSEWHERE, **figures)
    return ok(measured, **figures)


def owner(root: Path) -> Finding:
    """Whether a build may write to every folder of the store."""
    folders = [root, root / "v1", *(base for base, _ in bases(root))]
    folders += [base / name for base, _ in bases(root) for name in ("cas", "ac", "tmp", "leases", "locks")]
    there = [folder for folder in folders if folder.exists()]
    if os.statvfs(_nearest(root)).f_flag & os.ST_RDONLY:
        return failed(f"{_nearest(root)} is on a file system that is mounted read-only", _ELSEWHERE)
    for folder in there or [_nearest(root)]:
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            status = folder.stat()
            return failed(
                f"{folder} belongs to {_user(status.st_uid)}, and its mode {status.st_mode & 0o7777:04o} denies access",
                f"if a command under sudo made it: sudo chown -R {_user(os.geteuid())} {root}",
                _ELSEWHERE,
            )
    others = sorted({_user(folder.stat().st_uid) for folder in there} - {_user(os.geteuid())})
    if others:
        return ok(f"shared with {', '.join(others)}, writable")
    return ok(_user(os.geteuid()) if there else f"{_nearest(root)} is writable")


def space(root: Path) -> Finding:
    status = os.statvfs(_nearest(root))
    free, total = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
    share = free / total if total else 0.0
    figures: dict[str, Figure] = {"free_bytes": free, "total_bytes": total, "free_files": status.f_favail}
    measured = f"{byte_count(free)} free of {byte_count(total)} ({share:.0%})"
    advice = ("free space: mlcbuild cache gc --max-size 50G", _ELSEWHERE)
    if free < NO_SPACE:
        return failed(measured, *advice, **figures)
    if status.f_files and status.f_favail < status.f_files * LITTLE_SHARE:
        return warning(f"{measured}, but room for only {status.f_favail:,} more files", *advice, **figures)
    if free < LITTLE_SPACE or share < LITTLE_SHARE:
        return warning(measured, *advice, **figures)
    return ok(measured, **figures)


def abilities(root: Path) -> Finding:
    """What the store can use: extended attributes for checksums, reflinks, hard links, locks."""
    with _folder(root) as folder:
        first, second = folder / "first", folder / "second"
        first.write_bytes(bytes(SMALL_BYTES))
        with first.open("rb") as stream:
            checksum = integrity.checksum_of_file(stream.fileno())
            has_attributes = integrity.write_attribute(stream.fileno(), checksum)
            if has_attributes and os.getxattr(stream.fileno(), integrity.ATTRIBUTE) != checksum:
                return failed("an extended attribute does not read back as it was written", _ELSEWHERE)
            shares_blocks = clone_or_copy(stream.fileno(), str(second))
            has_locks = _locks(first)
        has_links = _links(first, folder / "third")
    figures: dict[str, Figure] = {
        "extended_attributes": has_attributes,
        "reflinks": shares_blocks,
        "hard_links": has_links,
        "locks": has_locks,
    }
    words = {"extended attributes": has_attributes, "reflinks": shares_blocks, "hard links": has_links}
    can, cannot = ([name for name, value in words.items() if value is kind] for kind in (True, False))
    measured = ", ".join(can) + (("; " if can else "") + f"no {', no '.join(cannot)}" if cannot else "")
    if not has_locks:
        return warning(f"no locks; {measured}", "run no gc during a build, or keep the cache elsewhere", **figures)
    return ok(measured, **figures)


def clock(root: Path) -> Finding:
    """Whether files get dates of this machine's clock. A file server uses its own clock."""
    with _folder(root) as folder:
        before = time.time()
        (folder / "dated").write_bytes(b"x")
        dated, after = (folder / "dated").stat().st_mtime, time.time()
    skew = dated - after if dated > after else min(dated - before, 0.0)
    if abs(skew) > _MOST_SKEW:
        advice = "synchronize both clocks: builds detect changes by the dates of files"
        return warning(f"dates of files are {skew:+.1f} s off this machine's clock", advice, skew_seconds=skew)
    return ok("dates of files agree with this machine's clock", skew_seconds=skew)


def small_writes(root: Path, function: DigestFunction) -> Finding:
    """Writes blobs of 4 KiB, each flushed and renamed, as a build stores outputs."""
    source = random.Random()
    times = []
    with _folder(root) as folder, _store(folder, function) as store:
        for _ in range(_SMALL_WRITES):
            data = source.randbytes(SMALL_BYTES)
            began = time.perf_counter()
            store.put_bytes(data)
            times.append(time.perf_counter() - began)
    median, longest = statistics.median(times), max(times)
    measured = f"{duration(median)} for a durable file of 4 KiB, at most {duration(longest)}"
    figures: dict[str, Figure] = {"median_seconds": median, "longest_seconds": longest}
    if median > _SLOW_WRITE:
        return warning(
            measured, "slower than a hard disk: check whether something else is using it", _ELSEWHERE, **figures
        )
    return ok(measured, **figures)


def throughput(root: Path, function: DigestFunction, *, size: int) -> Finding:
    """Writes one large blob durably, then reads and verifies it, from the disk if the kernel drops its cache."""
    status = os.statvfs(_nearest(root))
    size = min(size, max(status.f_bavail * status.f_frsize // 4, SMALL_BYTES))
    data = random.Random().randbytes(size)
    with _folder(root) as folder, _store(folder, function) as writer, _store(folder, function) as reader:
        began = time.perf_counter()
        digest = writer.put_bytes(data)
        written = time.perf_counter() - began
        with writer.path_of(digest).open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        began = time.perf_counter()
        came_back = reader.read(digest)
        read = time.perf_counter() - began
    figures: dict[str, Figure] = {"size_bytes": size, "write_seconds": written, "read_seconds": read}
    if came_back != data:
        return failed("a blob reads back with other bytes", "test this disk and this memory", **figures)
    measured = (
        f"wrote {transfer_rate(size, written)}, read and verified {transfer_rate(size, read)} ({byte_count(size)})"
    )
    if size >= _TELLING_BYTES and size / written < _SLOW_PACE:
        return warning(measured, "model weights are gigabytes: use a faster disk", _ELSEWHERE, **figures)
    return ok(measured, **figures)


def contents(root: Path) -> Finding:
    """Damaged blobs, and builds that use the cache."""
    found = list(bases(root))
    damaged = sum(len(list(_entries(base / "corrupt"))) for base, _ in found)
    held = sum(len(list(_entries(base / "leases"))) for base, _ in found)
    functions = ", ".join(function.value for _, function in found)
    figures: dict[str, Figure] = {"damaged": damaged, "builders": held}
    if damaged:
        return warning(
            f"{damaged} damaged blobs are in corrupt/" if damaged > 1 else "a damaged blob is in corrupt/",
            "the disk or the memory changed them: check the kernel's log, and run mlcbuild cache verify",
            "nothing wrong was used; remove corrupt/ once you have looked",
            **figures,
        )
    if not found:
        return ok("empty", **figures)
    building = f"; used by {held}" if held else ""
    return ok(f"digests by {functions}; no damage{building}", **figures)


@contextlib.contextmanager
def _folder(root: Path) -> Iterator[Path]:
    """A folder below the cache. It is removed at the end, with the folders above it that were made for it."""
    made = [folder for folder in (root, *root.parents) if not folder.exists()]
    parent = root / _FOLDER
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_old(parent)
        folder = Path(tempfile.mkdtemp(dir=parent))
        try:
            yield folder
        except BaseException as error:
            _let_go(error)
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise disk_error(error, Path(error.filename or root), "writing to") from error
    finally:
        for each in (parent, *made):
            with contextlib.suppress(OSError):
                each.rmdir()


@contextlib.contextmanager
def _store(folder: Path, function: DigestFunction) -> Iterator[DiskStore]:
    store = DiskStore(folder, function)
    try:
        yield store
    finally:
        store.release()


def _let_go(error: BaseException | None) -> None:
    """Drop a half-made store that the traceback references, because its finalizer looks at the folder."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _remove_old(parent: Path) -> None:
    """Remove folders of killed checks that are older than a day."""
    for path in parent.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _OLD_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def _nearest(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _user(identity: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(identity).pw_name
    except KeyError:
        return f"user {identity}"


def _links(path: Path, second: Path) -> bool:
    try:
        os.link(path, second)
    except OSError:
        return False
    return True


def _locks(path: Path) -> bool:
    with path.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def _entries(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from folder.iterdir()
