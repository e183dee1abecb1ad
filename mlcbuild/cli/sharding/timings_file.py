"""Reads and writes files of timings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlcbuild.cli.output.atomic_file import write_json_atomically
from mlcbuild.engine.timings import Timings, read_timings
from mlcbuild.errors import LocalEnvironmentError, UsageError
from mlcbuild.regular_files import read_regular


def read_timings_files(paths: Sequence[Path]) -> Timings:
    """The timings of all files together; those of later files count more. Raises UsageError, WorkspaceError."""
    return Timings.merged(_read(path) for path in paths)


def _read(path: Path) -> Timings:
    try:
        content = read_regular(path)
    except OSError as error:
        # Without it the split would be another one here than on machines that have it.
        raise UsageError(f"--timings {path}: {error.strerror or error}") from None
    return read_timings(content.decode("utf-8", "replace"), str(path))


def write_timings_file(path: Path, timings: Timings) -> None:
    """Write timings, replacing the file. Raises LocalEnvironmentError."""
    try:
        write_json_atomically(path, timings.document())
    except OSError as error:
        raise LocalEnvironmentError(f"{path} cannot be written: {error.strerror or error}") from None
