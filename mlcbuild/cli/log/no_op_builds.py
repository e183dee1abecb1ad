"""Builds that did nothing, one line each in `.mlcbuild/builds/no-op-builds.log`: they had nothing to do, or failed
before any action was known. It imports little, because the no-op check has to be fast.

Each line is a JSON object. It is appended with one write, after a line end: so a line that a full disk or a crash cut
short spoils no other. The file is locked for that, because several commands may be at it, and one of them may replace
it by its newer half.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.regular_files import open_regular

NO_OP_FILE = "no-op-builds.log"
_MOST_TARGETS = 40  # labels in a line
_LONGEST = 256 << 10  # bytes of the file; some 1,000 builds
_KEPT = 128 << 10
_TRIES = 8
_LONGEST_ERROR = 2000  # characters


def append_no_op(
    directory: Path,
    *,
    began: float,
    arguments: Sequence[str],
    targets: Sequence[str],
    actions: int,
    wall_seconds: float,
    invocation: str = "",
) -> None:
    """Remember a build that found all its `actions` up to date. "" stands for a new invocation.

    Nothing is written where no history is kept, or nothing can be written.
    """
    _append(
        directory,
        {
            "invocation": invocation or str(uuid.uuid4()),
            "began": round(began, 3),
            "arguments": list(arguments),
            "targets": list(targets[:_MOST_TARGETS]),
            "target_count": len(targets),
            "actions": actions,
            "wall_seconds": round(wall_seconds, 3),
        },
    )


def append_failed_start(
    directory: Path,
    *,
    invocation: str,
    began: float,
    arguments: Sequence[str],
    patterns: Sequence[str],
    exit_code: int,
    error: str,
    wall_seconds: float,
) -> None:
    """Remember a build that failed before any action was known, as `append_no_op` does. `patterns` are what it was
    asked for, and `error` is what the user was told.
    """
    _append(
        directory,
        {
            "invocation": invocation,
            "began": round(began, 3),
            "arguments": list(arguments),
            "targets": list(patterns[:_MOST_TARGETS]),
            "target_count": len(patterns),
            "actions": 0,
            "wall_seconds": round(wall_seconds, 3),
            "exit_code": exit_code,
            "error": error[:_LONGEST_ERROR],
        },
    )


def _append(directory: Path, document: dict[str, Any]) -> None:
    line = json.dumps(document)
    path = directory / NO_OP_FILE
    with contextlib.suppress(OSError):
        descriptor = _locked(path)
        try:
            size = os.fstat(descriptor).st_size + os.write(descriptor, b"\n%s\n" % line.encode())
            if size > _LONGEST:
                _keep_newer_half(path, descriptor, size)
        finally:
            os.close(descriptor)


def no_op_lines(directory: Path) -> Iterator[dict[str, Any]]:
    """What is remembered, newest first, without damaged lines. The caller checks the fields."""
    try:
        with os.fdopen(open_regular(directory / NO_OP_FILE), "rb") as stream:
            lines = stream.read(2 * _LONGEST).split(b"\n")
    except OSError:
        return
    for line in reversed(lines):
        with contextlib.suppress(ValueError, RecursionError):
            if line and isinstance(document := json.loads(line), dict):
                yield document


def _locked(path: Path) -> int:
    """The file, for appending, locked until it is closed. Raises OSError."""
    for _ in range(_TRIES):
        descriptor = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # else another command has just replaced it
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise OSError("the file is being replaced all the time")


def _keep_newer_half(path: Path, descriptor: int, size: int) -> None:
    """Replace the file, which is locked, by its last lines. Raises OSError."""
    tail = os.pread(descriptor, _KEPT, size - _KEPT)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        temporary.write_bytes(tail[tail.index(b"\n") :])
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
