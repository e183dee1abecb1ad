"""The files of a batch: standard streams, or files that appear when they are whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

STANDARD_STREAM = Path("-")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file to read, or standard input."""
    if path == STANDARD_STREAM:
        yield sys.stdin.buffer
        return
    with path.open("rb") as stream:
        yield stream


@contextmanager
def written(path: Path | None) -> Iterator[TextIO]:
    """A stream whose file is renamed into its place at the end of the block; nothing is left of one that failed.
    Anything but a regular file (`/dev/stdout`, a named pipe) is written directly."""
    if path is None or path == STANDARD_STREAM:
        yield sys.stdout
        return
    with _whole(path, "w") as stream:
        yield stream


@contextmanager
def written_bytes(path: Path) -> Iterator[BinaryIO]:
    """The same for a file that holds no text."""
    with _whole(path, "wb") as stream:
        yield stream


@contextmanager
def _whole(path: Path, mode: str) -> Iterator[Any]:
    encoding = None if "b" in mode else "utf-8"
    if path.exists() and not path.is_file():
        with path.open(mode, encoding=encoding) as stream:
            yield stream
        return
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open(mode, encoding=encoding) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
