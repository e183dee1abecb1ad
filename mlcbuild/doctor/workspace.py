"""A workspace: its targets, and the folders that builds write to."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.doctor.check import Check
from mlcbuild.doctor.examination import of_error
from mlcbuild.doctor.finding import Finding, FindingCause, failed, ok, warning
from mlcbuild.engine.workspace_lock import LOCK_FILE
from mlcbuild.errors import WorkspaceError

_LOAD_SECONDS = 60.0
_MOST_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class RecordedBuilds:
    """The history of builds: how many files it has, and which are damaged, with the reasons."""

    count: int
    damaged: tuple[tuple[Path, str], ...]


def workspace_checks(
    *,
    name: str,
    root: Path,
    state: Path,
    outputs: Path,
    count_targets: Callable[[], int],
    read_history: Callable[[], RecordedBuilds],
) -> Sequence[Check]:
    """`count_targets` loads all packages and counts their targets. It raises WorkspaceError for errors in them.
    `read_history` reads all records of builds; it raises OSError if their folder cannot be read.
    """
    return (
        Check(name="found", examine=lambda: ok(f'"{name}" in {root}')),
        Check(name="targets", examine=lambda: targets(count_targets), seconds=_LOAD_SECONDS),
        Check(name="state", examine=lambda: writable(state, root)),
        Check(name="outputs", examine=lambda: writable(outputs, root)),
        Check(name="lock", examine=lambda: lock(state / LOCK_FILE)),
        Check(name="history", examine=lambda: history(read_history, root), seconds=_LOAD_SECONDS),
        Check(name="crashes", examine=lambda: crashes(state)),
    )


def targets(count: Callable[[], int]) -> Finding:
    try:
        found = count()
    except WorkspaceError as error:
        return of_error(error, cause=FindingCause.TARGETS)
    return ok(f"{found:,} target{'s' * (found != 1)}, no errors", count=found)


def writable(folder: Path, root: Path) -> Finding:
    """Makes a file in the folder or, if it does not exist yet, beside it."""
    there = folder if folder.is_dir() else root
    shown = folder.relative_to(root) if folder.is_relative_to(root) else folder
    if folder.exists() and not folder.is_dir():
        return failed(f"{shown} is not a folder", "move it: builds write there")
    try:
        descriptor, path = tempfile.mkstemp(prefix=".mlcbuild-doctor-", dir=there)
        try:
            os.write(descriptor, b"x")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            Path(path).unlink()
    except OSError as error:
        reason = error.strerror or str(error)
        return failed(f"{shown}/ is not writable: {reason}", f"check the owner, mode and space of {there}")
    return ok(f"{shown}/ " + ("is writable" if there == folder else "can be created"))


def lock(path: Path) -> Finding:
    """Takes and releases the lock, unless a build holds it. A dead process holds no lock."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return ok("free: no build has run here yet")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 64, 0).decode(errors="replace").strip()
        who = f"process {holder}" if holder.isdigit() else "another process"
        return ok(f"held by {who}, which is building here")
    except OSError as error:
        return failed(
            f"{path.parent.name}/ cannot be locked: {error.strerror or error}",
            "move the workspace to a file system with locks",
        )
    finally:
        os.close(descriptor)
    return ok("free")


def history(read: Callable[[], RecordedBuilds], root: Path) -> Finding:
    """A damaged record costs an answer of `log`, `explain` or `report`, and no build."""
    try:
        found = read()
    except OSError as error:
        return warning(
            f"the history of builds cannot be read: {error.filename}: {error.strerror or error}",
            "check the owner and mode of that folder: `mlcbuild log` shows no build",
        )
    if not found.damaged:
        return ok(f"{found.count:,} recorded build{'s' * (found.count != 1)}, no damage", count=found.count)
    shown = [f"{path.relative_to(root)}: {reason}" for path, reason in found.damaged[:_MOST_NAMED]]
    more = [f"and {len(found.damaged) - _MOST_NAMED:,} more"] if len(found.damaged) > _MOST_NAMED else []
    return warning(
        f"{len(found.damaged):,} of {found.count:,} records of builds are damaged",
        *shown,
        *more,
        "remove these files: `mlcbuild log` leaves them out, or shows less of these builds",
    )


def crashes(state: Path) -> Finding:
    found: list[str] = []
    with contextlib.suppress(OSError):
        found = sorted(path.name for path in state.iterdir() if path.name.startswith("crash-"))
    if found:
        measured = (
            f"{len(found)} time{'s' * (len(found) > 1)} mlcbuild itself failed here; the last traceback is {found[-1]}"
        )
        return warning(measured, f"report it with that file, then remove {state.name}/crash-*")
    return ok("none")
