"""SHA256SUMS, as `sha256sum` of GNU coreutils writes and checks it: digest, two spaces, path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mlcbuild.release.contents import ReleaseFile

_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def checksums(files: Iterable[ReleaseFile]) -> bytes:
    """The content of SHA256SUMS, sorted by path."""
    return "".join(f"{file.sha256}  {file.path}\n" for file in sorted(files, key=lambda each: each.path)).encode()


def read_checksums(content: bytes) -> Mapping[str, str]:
    """Path → SHA-256. Raises ValueError with the number of the first line that is not one, or repeats a path."""
    found: dict[str, str] = {}
    for number, line in enumerate(content.decode("utf-8").splitlines(), 1):
        read = _LINE.fullmatch(line)
        if read is None:
            raise ValueError(f"line {number} is not a digest and a path")
        if read[2] in found:
            raise ValueError(f"line {number} repeats {read[2]}")
        found[read[2]] = read[1]
    return found
