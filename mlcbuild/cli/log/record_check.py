"""Reads all records of builds as far as they go, and says which are damaged. For `mlcbuild doctor`."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path

from mlcbuild.cli.log.no_op_builds import NO_OP_FILE
from mlcbuild.cli.log.record_file import is_readable_version, record_files
from mlcbuild.cli.log.records import record_of
from mlcbuild.doctor.workspace import RecordedBuilds
from mlcbuild.regular_files import read_regular


def check_records(directory: Path) -> RecordedBuilds:
    """Raises OSError if the folder is there and cannot be read."""
    if directory.exists():
        os.listdir(directory)  # noqa: PTH208  `record_files` takes an unreadable folder for an empty one.
    paths = record_files(directory)
    checked = [(path, _damage_of_record(path)) for path in paths]
    idle = directory / NO_OP_FILE
    if idle.exists():
        checked.append((idle, _damage_of_lines(idle)))
    return RecordedBuilds(count=len(checked), damaged=tuple((path, reason) for path, reason in checked if reason))


def _damage_of_record(path: Path) -> str:
    """Why a record cannot be read whole; "" if it can."""
    try:
        head, _, body = read_regular(path).partition(b"\n")
        summary = json.loads(head)
        if not isinstance(summary, dict):
            return "its first line is no summary"
        if "version" not in summary or not is_readable_version(summary):
            return f"its version is {summary.get('version')}, which this mlcbuild does not read"
        if record_of(summary, path) is None:
            return "its summary lacks fields"
        if path.suffix == ".record":
            inflater = zlib.decompressobj()
            body = inflater.decompress(body)
            if not inflater.eof:
                return "it was cut short"
        return "" if all(isinstance(json.loads(line), dict) for line in body.splitlines()) else "a line is no object"
    except OSError as error:
        return error.strerror or str(error)
    except zlib.error:
        return "its compressed part is damaged"
    except (ValueError, RecursionError):
        return "a line is no JSON"


def _damage_of_lines(path: Path) -> str:
    try:
        lines = [line for line in read_regular(path).split(b"\n") if line]
    except OSError as error:
        return error.strerror or str(error)
    wrong = sum(not _is_object(line) for line in lines)
    return f"{wrong:,} of {len(lines):,} lines are no JSON objects" if wrong else ""


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
