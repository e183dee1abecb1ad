"""A folder of candidates that goes to a machine with the device, and comes back with records.

`candidates.json` says what is there: for each kernel its list of shapes, the library of each candidate and that of the
default shape, with their digests. `measurements.jsonl` has a line for each candidate that was measured: its kernel, its
number, what came of it. A line is written once it is known, so a measurement that is interrupted goes on where it was;
half a line counts as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcbuild.errors import LocalEnvironmentError, UsageError
from mlcbuild.regular_files import read_regular
from mlcbuild.runtime.measuring import measurement as forms
from mlcbuild.runtime.measuring.candidate_list import CandidateList
from mlcbuild.runtime.measuring.measurement import Measurement

VERSION = 3
_CONTENTS = "candidates.json"
_MEASUREMENTS = "measurements.jsonl"


@dataclass(frozen=True, kw_only=True)
class KernelCandidates:
    """`numbers` are the places of the candidates in `listed.shapes`; `text` describes the kernel for people."""

    listed: CandidateList
    text: str
    numbers: tuple[int, ...]

    def library(self, number: int) -> str:
        """The path of a candidate's library in the folder; the number 0 is the default shape."""
        return f"libraries/{self.listed.kernel}.{number}.so"


@dataclass(frozen=True, kw_only=True)
class FolderContents:
    """`platform` is the name of what the candidates were compiled for, `tools` what compiled them. `libraries` has the
    SHA-256 of each library by its path in the folder."""

    platform: str
    tools: str
    kernels: tuple[KernelCandidates, ...]
    libraries: Mapping[str, str]

    def written(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "platform": self.platform,
            "tools": self.tools,
            "libraries": dict(self.libraries),
            "kernels": [
                {
                    "listed": each.listed.written(),
                    "text": each.text,
                    "numbers": list(each.numbers),
                }
                for each in self.kernels
            ],
        }


def write_contents(folder: Path, contents: FolderContents) -> None:
    (folder / _CONTENTS).write_text(json.dumps(contents.written(), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_contents(folder: Path) -> FolderContents:
    """Raises UsageError for a folder that holds no candidates."""
    path = folder / _CONTENTS
    try:
        document = json.loads(path.read_bytes())
        if document["version"] != VERSION:
            raise ValueError(f"it is of version {document['version']!r}, not {VERSION}")
        return FolderContents(
            platform=str(document["platform"]),
            tools=str(document["tools"]),
            libraries={str(library): str(digest) for library, digest in document["libraries"].items()},
            kernels=tuple(
                KernelCandidates(
                    listed=CandidateList.read(each["listed"]),
                    text=str(each["text"]),
                    numbers=tuple(int(number) for number in each["numbers"]),
                )
                for each in document["kernels"]
            ),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"{path} cannot be read: {reason}",
            advice=("name a folder that `mlcbuild tune candidates --to DIR` has written",),
        ) from error


def digest_of(library: bytes) -> str:
    """What `FolderContents.libraries` has of a library."""
    return hashlib.sha256(library).hexdigest()


def check_libraries(folder: Path, contents: FolderContents) -> None:
    """Raises LocalEnvironmentError where a library is missing, or not as it was written: a copy that is not whole says
    nothing of its candidates."""
    for library, digest in sorted(contents.libraries.items()):
        try:
            reason = "" if digest_of(read_regular(folder / library)) == digest else "it is not as it was written"
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            raise LocalEnvironmentError(
                f"{folder / library} cannot be measured: {reason}", advice=("copy the folder again",)
            )


@dataclass(frozen=True, kw_only=True)
class MeasuredCandidate:
    """What came of the `number`-th shape of a kernel."""

    kernel: str
    number: int
    measurements: tuple[Measurement, ...]


def measured_candidates(folder: Path) -> tuple[MeasuredCandidate, ...]:
    """Those of whole lines, in the order in which they were measured."""
    return tuple(_lines(folder))


def _lines(folder: Path) -> Iterator[MeasuredCandidate]:
    try:
        lines = (folder / _MEASUREMENTS).read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            document = json.loads(line)
            yield MeasuredCandidate(
                kernel=str(document["kernel"]),
                number=int(document["number"]),
                measurements=forms.from_json(json.dumps(document["measured"])),
            )


def add_measured(folder: Path, kernel: str, number: int, measurements: Sequence[Measurement]) -> None:
    """Append a line, and wait for the disk. Raises LocalEnvironmentError where it does not take it."""
    document = {"kernel": kernel, "number": number, "measured": json.loads(forms.to_json(measurements))}
    path = folder / _MEASUREMENTS
    try:
        with path.open("a+b") as stream:
            # A line that was cut short ends here, and counts as none.
            torn = False
            if stream.tell() > 0:
                stream.seek(-1, os.SEEK_END)
                torn = stream.read(1) != b"\n"
            stream.write((b"\n" if torn else b"") + json.dumps(document).encode() + b"\n")
            stream.flush()
            os.fdatasync(stream.fileno())
    except OSError as error:
        raise LocalEnvironmentError(f"{path} cannot be written: {error.strerror or error}") from error
