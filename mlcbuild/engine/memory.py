"""What can be computed again, remembered between builds: one JSON file in the workspace's `.mlcbuild/`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from mlcbuild.cache.atomic import write_atomically


class JsonMemory:
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
        data = json.dumps({"kind": self._kind, "values": self._values.copy()}, separators=(",", ":"))
        with contextlib.suppress(OSError):
            write_atomically(self._path, data.encode())
            self._changed = False

    def _load(self) -> dict[str, Any]:
        if self._path is None:
            return {}
        try:
            document = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(document, dict) or document.get("kind") != self._kind:
            return {}
        values = document.get("values")
        return values if isinstance(values, dict) else {}
