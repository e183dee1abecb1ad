"""The file of one build's record: `BEGAN-INVOCATION.record` in `.mlcbuild/builds/`.

The first line is the summary, a JSON object that is all a list of builds needs. What follows is one zlib stream of
lines, each a JSON object: what became of the targets by label; the critical path with the slacks, the notices and the
targets that cannot be built; and each action in the order in which they ended. An action has the fields of the event
log (`mlcbuild.cli.reports.event_log`) without its log and without those that are 0 or empty.

Files of version 1 (`.jsonl`) had the critical path in the summary, nothing of targets, and actions that were not
compressed. They are read, and no longer written.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from mlcbuild.cli.output.json_output import json_text
from mlcbuild.regular_files import open_regular

FORMAT, VERSION = "mlcbuild build record", 2
_SUFFIX, _SUFFIX_OF_VERSION_1 = ".record", ".jsonl"
_UNFINISHED = ".tmp"
_UNFINISHED_SECONDS = 3600.0  # after which nobody is writing a file any more
_LONGEST_SUMMARY = 4 << 20
_FIRST_CHUNK, _LARGEST_CHUNK = 2 << 10, 256 << 10  # bytes: often only the first lines are read
_LEVEL = 3  # of zlib; half of the bytes are digests, which no level makes smaller


def write_file(directory: Path, summary: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> Path:
    """Write a record, completely or not at all. `summary` has `began` and `invocation`. Raises OSError."""
    began = float(summary["began"])
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(began))
    path = directory / f"{stamp}.{int(began * 1000) % 1000:03}-{summary['invocation'][:8]}{_SUFFIX}"
    body = "".join(json_text(line) + "\n" for line in lines).encode()
    head = json_text({"format": FORMAT, "version": VERSION, **summary}).encode()
    directory.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}-{os.urandom(4).hex()}{_UNFINISHED}")
    try:
        temporary.write_bytes(b"%s\n%s" % (head, zlib.compress(body, _LEVEL)))
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return path


def record_files(directory: Path) -> list[Path]:
    """The files of records, newest first: their names begin with the time."""
    try:
        names = sorted(os.listdir(directory), reverse=True)  # noqa: PTH208  A Path for each would take ten times longer.
    except OSError:
        return []
    return [directory / name for name in names if name.endswith((_SUFFIX, _SUFFIX_OF_VERSION_1))]


def read_summary(path: Path) -> dict[str, Any] | None:
    """None for a damaged file, and one of another version. The caller checks the fields."""
    try:
        with _open(path) as stream:
            summary = json.loads(stream.readline(_LONGEST_SUMMARY))
        return summary if is_readable_version(summary) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def is_readable_version(summary: Mapping[str, Any]) -> bool:
    """Raises KeyError for a summary without a version."""
    return summary["version"] in (1, VERSION)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """What follows the summary. A damaged file gives fewer lines. Only as much as is asked for is read."""
    try:
        with _open(path) as stream:
            stream.readline(_LONGEST_SUMMARY)
            rest = b""
            for chunk in _inflated(_chunks(stream)) if path.suffix == _SUFFIX else _chunks(stream):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    document = json.loads(line)
                    if not isinstance(document, dict):
                        return
                    yield document
    except (OSError, ValueError, RecursionError, zlib.error):
        return


def remove_unfinished(directory: Path) -> None:
    """Remove what writers that were killed have left."""
    oldest = time.time() - _UNFINISHED_SECONDS
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(_UNFINISHED) and entry.stat(follow_symlinks=False).st_mtime < oldest:
                os.unlink(entry.path)  # noqa: PTH108


def _open(path: Path) -> IO[bytes]:
    return os.fdopen(open_regular(path), "rb")


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    size = _FIRST_CHUNK
    while chunk := stream.read(size):
        yield chunk
        size = min(2 * size, _LARGEST_CHUNK)


def _inflated(chunks: Iterable[bytes]) -> Iterator[bytes]:
    inflater = zlib.decompressobj()
    return (inflater.decompress(chunk) for chunk in chunks)
