"""What can be computed again, remembered between builds: one file in the workspace's `.mlcbuild/`.

Its first line is the XXH3-128 of the rest in hexadecimal, the rest is JSON.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from mlcbuild.cache.atomic import write_atomically
from mlcbuild.cache.integrity import checksum_of_bytes


class JsonCache:
    """Key → JSON value. `kind` names what the values mean and their version: a file of another kind is not
    read.

    A damaged file is an empty one. `path = None` remembers for the life of the object alone.
    """

    def __init__(self, path: Path | None, *, kind: str) -> None:
        self._path = path
        self._kind = kind
        self._changed = False
        self._values = self._load()

    def get(self, key: str) -> Any:
        """None where nothing is remembered. The caller checks the shape: the file may come from anywhere."""
        return self._values.get(key)

    def set(self, key: str, value: Any) -> None:
        self._values[key] = value
        self._changed = True

    def save(self) -> None:
        """Write the file where something changed.

        A disk that cannot take it costs time later, nothing else.
        """
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
            # What is damaged is most often JSON still, of other names and digests.
            checksum, _, body = self._path.read_bytes().partition(b"\n")
            if checksum != checksum_of_bytes(body).hex().encode():
                return {}
            document = json.loads(body)
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(document, dict) or document.get("kind") != self._kind:
            return {}
        values = document.get("values")
        return values if isinstance(values, dict) else {}
