"""The disk cache: where it lies, whose it is, what its file system can do, and how fast it is.

What is written is written to a store of the check's own, in a folder of its own beside the real one, which is removed
at the end.
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
from mlcbuild.doctor.finding import Figure, Finding, ok, problem, warning
from mlcbuild.figures import byte_count, duration, transfer_rate

LITTLE_SPACE = 10_000_000_000
NO_SPACE = 1_000_000_000
LITTLE_SHARE = 0.02
BIG_BYTES = 64 << 20
SMALL_BYTES = 4 << 10
_SMALL_WRITES = 15
_SLOW_WRITE = 0.1  # seconds: what a disk that turns takes for a write with two flushes, with some room
_SLOW_PACE = 30_000_000  # bytes a second
_TELLING_BYTES = 32 << 20  # of fewer, the flush decides
_MOST_SKEW = 2.0  # seconds: files younger than that are not believed to be settled
_FOLDER = "doctor"
_OLD_SECONDS = 86_400.0
_SPEED_SECONDS = 90.0
_ELSEWHERE = "set XDG_CACHE_HOME, or give --disk-cache, to keep it on another disk"
_HANGS = ("a server that does not answer? look at the mount", _ELSEWHERE)


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
    told = f"{root} ({found.kind})" + ("" if root.exists() else ", which the first build makes")
    if root.exists() and not root.is_dir():
        return problem(f"{root} is no folder", _ELSEWHERE, **figures)
    if found.is_network:
        advice = "share results by a remote cache, and keep this one on a disk of this machine"
        return warning(f"{told}, on a server: slower, and its locks are less sure", advice, _ELSEWHERE, **figures)
    if found.kind in ("tmpfs", "ramfs"):
        return warning(f"{told}, in memory: it is gone with the next start", _ELSEWHERE, **figures)
    return ok(told, **figures)


def owner(root: Path) -> Finding:
    """Every folder of the store that a build writes to."""
    folders = [root, root / "v1", *(base for base, _ in bases(root))]
    folders += [base / name for base, _ in bases(root) for name in ("cas", "ac", "tmp", "leases", "locks")]
    there = [folder for folder in folders if folder.exists()]
    if os.statvfs(_nearest(root)).f_flag & os.ST_RDONLY:
        return problem(f"{_nearest(root)} lies on a file system that is mounted read-only", _ELSEWHERE)
    for folder in there or [_nearest(root)]:
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            status = folder.stat()
            return problem(
                f"{folder} belongs to {_user(status.st_uid)}, and its mode {status.st_mode & 0o7777:04o} keeps us out",
                f"a command run by sudo may have made it: sudo chown -R {_user(os.geteuid())} {root}",
                _ELSEWHERE,
            )
    others = sorted({_user(folder.stat().st_uid) for folder in there} - {_user(os.geteuid())})
    if others:
        return ok(f"shared with {', '.join(others)}, and we may write")
    return ok("ours" if there else f"{_nearest(root)} may be written to")


def space(root: Path) -> Finding:
    status = os.statvfs(_nearest(root))
    free, total = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
    share = free / total if total else 0.0
    figures: dict[str, Figure] = {"free_bytes": free, "total_bytes": total, "free_files": status.f_favail}
    told = f"{byte_count(free)} free of {byte_count(total)} ({share:.0%})"
    advice = ("make room: mlcbuild cache gc --max-size 50G", _ELSEWHERE)
    if free < NO_SPACE:
        return problem(told, *advice, **figures)
    if status.f_files and status.f_favail < status.f_files * LITTLE_SHARE:
        return warning(f"{told}, but only {status.f_favail:,} more files", *advice, **figures)
    if free < LITTLE_SPACE or share < LITTLE_SHARE:
        return warning(told, *advice, **figures)
    return ok(told, **figures)


def abilities(root: Path) -> Finding:
    """What the store uses where it is there: attributes for checksums, shared blocks, second names, locks."""
    with _folder(root) as folder:
        first, second = folder / "first", folder / "second"
        first.write_bytes(bytes(SMALL_BYTES))
        with first.open("rb") as stream:
            checksum = integrity.checksum_of_file(stream.fileno())
            has_attributes = integrity.write_attribute(stream.fileno(), checksum)
            if has_attributes and os.getxattr(stream.fileno(), integrity.ATTRIBUTE) != checksum:
                return problem("an extended attribute is not read as it was written", _ELSEWHERE)
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
    told = ", ".join(can) + (("; " if can else "") + f"no {', no '.join(cannot)}" if cannot else "")
    if not has_locks:
        return warning(f"no locks; {told}", "run no gc while something builds, or keep the cache elsewhere", **figures)
    return ok(told, **figures)


def clock(root: Path) -> Finding:
    """Whether files are dated as this machine's clock says: a server dates them by its own."""
    with _folder(root) as folder:
        before = time.time()
        (folder / "dated").write_bytes(b"x")
        dated, after = (folder / "dated").stat().st_mtime, time.time()
    skew = dated - after if dated > after else min(dated - before, 0.0)
    if abs(skew) > _MOST_SKEW:
        advice = "set both clocks by one service: what has changed is told by the dates of files"
        return warning(f"files are dated {skew:+.1f} s from this machine's clock", advice, skew_seconds=skew)
    return ok("files are dated by this machine's clock", skew_seconds=skew)


def small_writes(root: Path, function: DigestFunction) -> Finding:
    """Blobs of 4 KiB, each made durable and renamed, as a build keeps what an action made."""
    source = random.Random()
    times = []
    with _folder(root) as folder, _store(folder, function) as store:
        for _ in range(_SMALL_WRITES):
            data = source.randbytes(SMALL_BYTES)
            began = time.perf_counter()
            store.put_bytes(data)
            times.append(time.perf_counter() - began)
    median, longest = statistics.median(times), max(times)
    told = f"{duration(median)} a durable file of 4 KiB, at most {duration(longest)}"
    figures: dict[str, Figure] = {"median_seconds": median, "longest_seconds": longest}
    if median > _SLOW_WRITE:
        return warning(told, "slower than a disk that turns: is something else busy on it?", _ELSEWHERE, **figures)
    return ok(told, **figures)


def throughput(root: Path, function: DigestFunction, *, size: int) -> Finding:
    """One large blob written durably, and read back from the disk and verified, as far as the kernel lets go of it."""
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
        return problem("what was written came back with other bytes", "test this disk and this memory", **figures)
    told = f"wrote {transfer_rate(size, written)}, read and verified {transfer_rate(size, read)} ({byte_count(size)})"
    if size >= _TELLING_BYTES and size / written < _SLOW_PACE:
        return warning(told, "weights of a model are gigabytes: keep the cache on a faster disk", _ELSEWHERE, **figures)
    return ok(told, **figures)


def contents(root: Path) -> Finding:
    """What builds that were killed, and disks that lied, have left."""
    found = list(bases(root))
    damaged = sum(len(list(_entries(base / "corrupt"))) for base, _ in found)
    held = sum(len(list(_entries(base / "leases"))) for base, _ in found)
    functions = ", ".join(function.value for _, function in found)
    figures: dict[str, Figure] = {"damaged": damaged, "builders": held}
    if damaged:
        return warning(
            f"{damaged} damaged blobs are in corrupt/" if damaged > 1 else "a damaged blob is in corrupt/",
            "the disk or the memory changed them: look at the kernel's log, and run mlcbuild cache verify",
            "nothing wrong was used; remove corrupt/ once you have looked",
            **figures,
        )
    if not found:
        return ok("empty", **figures)
    building = f"; {held} at work on it" if held else ""
    return ok(f"blobs by {functions}; nothing damaged{building}", **figures)


@contextlib.contextmanager
def _folder(root: Path) -> Iterator[Path]:
    """A folder beside the store's own, removed at the end, as are those around it that were made for it."""
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
    """A store that could not be made, and which the error's story holds, ends now: it looks at its folder then."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _remove_old(parent: Path) -> None:
    """What one that was killed has left; the day's are left to whoever may still write them."""
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
