"""A cache of JSON values between builds, in one file of the workspace's `.mlcbuild/`. All of it can be computed again.

The first line is the hexadecimal XXH3-128 of the rest, which is JSON.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from mlcbuild.cache.atomic import write_atomically
from mlcbuild.cache.integrity import checksum_of_bytes
from mlcbuild.regular_files import read_regular


class JsonCache:
    """Key → JSON value. `kind` names the meaning and version of the values. A file of another kind is not read.

    A damaged file counts as empty. With `path = None` values live as long as the object.
    """

    def __init__(self, path: Path | None, *, kind: str) -> None:
        self._path = path
        self._kind = kind
        self._changed = False
        self._values = self._load()

    def get(self, key: str) -> Any:
        """None where nothing is known. The caller checks the shape, because the file may come from anywhere."""
        return self._values.get(key)

    def set(self, key: str, value: Any) -> None:
        self._values[key] = value
        self._changed = True

    def save(self) -> None:
        """Write the file if something has changed. A disk that cannot take it only makes the next build slower."""
        if self._path is None or not self._changed:
            return
        document = {"kind": self._kind, "values": self._values.copy()}
        body = json.dumps(document, separators=(",", ":")).encode()
        with contextlib.suppress(OSError):
            write_atomically(self._path, checksum_of_bytes(body).hex().encode() + b"\n" + body)
            self._changed = False

    def _load(self) -> dict[str, Any]:
        if self._path is None:
            return {}
        try:
            # A damaged file is often still valid JSON, with wrong names and digests.
            checksum, _, body = read_regular(self._path).partition(b"\n")
            if checksum != checksum_of_bytes(body).hex().encode():
                return {}
            document = json.loads(body)
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(document, dict) or document.get("kind") != self._kind:
            return {}
        values = document.get("values")
        return values if isinstance(values, dict) else {}
