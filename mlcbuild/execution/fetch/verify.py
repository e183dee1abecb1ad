"""Writes a stream to a file if it has the pinned digest, and writes nothing otherwise."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mlcbuild.errors import FetchError

UPDATE = "to pin what is there now, run `mlcbuild fetch --update TARGET`"
_SHA256 = re.compile(r"[0-9a-f]{64}")


def check_pin(sha256: str, what: str) -> None:
    """Raises FetchError if the pin is missing or is not a SHA-256 in lower-case hexadecimal."""
    if not sha256:
        raise FetchError(f"{what} has no pinned sha256", advice=(UPDATE,))
    if not _SHA256.fullmatch(sha256):
        raise FetchError(f"{what} is pinned to {sha256!r}, which is not 64 hexadecimal digits", advice=(UPDATE,))


def check_digest(actual: str, sha256: str, what: str) -> None:
    """Raises FetchError if `actual` is not the pin."""
    if actual != sha256:
        raise FetchError(
            f"the SHA-256 of {what} is not the pinned one\n  expected {sha256}\n  actual   {actual}",
            advice=(f"if this change was expected, {UPDATE}; otherwise do not trust the file",),
        )


def digest(chunks: Iterable[bytes]) -> str:
    """The SHA-256 of a stream, in hexadecimal."""
    hasher = hashlib.sha256()
    for chunk in chunks:
        hasher.update(chunk)
    return hasher.hexdigest()


def save(chunks: Iterable[bytes], file: Path) -> str:
    """Write a stream to `file` and return its SHA-256. If the stream fails, no file is left."""
    hasher = hashlib.sha256()
    try:
        with file.open("wb") as stream:
            for chunk in chunks:
                hasher.update(chunk)
                stream.write(chunk)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return hasher.hexdigest()


def receive(chunks: Iterable[bytes], *, file: Path, sha256: str, what: str) -> None:
    """`save`, and then keep the file only if it has the pinned digest. Raises FetchError."""
    actual = save(chunks, file)
    try:
        check_digest(actual, sha256, what)
    except FetchError:
        file.unlink()
        raise


def hint(hints: Mapping[str, Any], name: str) -> str:
    """A text among the hints. Raises FetchError if it is missing."""
    value = hints.get(name)
    if not isinstance(value, str) or not value:
        raise FetchError(f"a fetch needs {name!r}, which is {value!r}")
    return value
