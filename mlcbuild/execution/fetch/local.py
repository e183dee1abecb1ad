"""Fetches a file of this machine from outside the workspace. Hints: `path`, absolute or starting with `~`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlcbuild.errors import FetchError
from mlcbuild.execution.fetch import verify

_CHUNK_BYTES = 1 << 20


def run(*, file: Path, sha256: str, name: str, hints: dict[str, Any]) -> None:
    """Copy the file to `file` if it has the pinned digest. Raises FetchError."""
    verify.check_pin(sha256, name)
    verify.receive(chunks(hints), file=file, sha256=sha256, what=verify.hint(hints, "path"))


def chunks(hints: Mapping[str, Any]) -> Iterator[bytes]:
    """The bytes of the file. Raises FetchError if it cannot be read."""
    given = verify.hint(hints, "path")
    try:
        path = Path(given).expanduser()
    except RuntimeError as error:
        raise FetchError(f"{given}: {error}") from None
    if not path.is_absolute():
        raise FetchError(
            f"{given!r} is not an absolute path", advice=("files of the workspace need no fetch: name them as sources",)
        )
    if path.exists() and not path.is_file():
        raise FetchError(f"{path} is not a file")
    try:
        with path.open("rb", buffering=0) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise FetchError(f"{path} cannot be read: {error.strerror}") from error
