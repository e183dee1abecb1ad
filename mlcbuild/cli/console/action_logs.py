"""Logs of actions under `.mlcbuild/logs/`. Messages show the end of a log and the path of the whole."""

from __future__ import annotations

import re
from pathlib import Path

from mlcbuild.engine.build_events import ActionFinished

_UNSAFE = re.compile(r"[^A-Za-z0-9_.+=-]+")
_LONGEST_NAME = 150  # bytes; file systems allow 255, and a suffix follows


def log_path(identifier: str) -> str:
    """The path of an action's log below the log directory: `models/x/Export.log` for `//models:x Export`.

    The next build's log of the same action replaces it.
    """
    label, _, rest = identifier.partition(" ")
    if not rest or not label.startswith("//"):
        label, rest = "", identifier
    folders = [_safe(part) for part in re.split(r"[/:]+", label) if part]
    return "/".join([*folders, f"{_safe(rest)}.log"])


def _safe(name: str) -> str:
    cleaned = _UNSAFE.sub("-", name).strip("-")[:_LONGEST_NAME]
    return f"_{cleaned}" if cleaned.startswith(".") or not cleaned else cleaned


class ActionLogs:
    """Writes the logs of finished actions below `directory`."""

    def __init__(self, directory: Path, *, shown_as: str) -> None:
        self._directory = directory
        self._shown_as = shown_as

    def keep(self, event: ActionFinished) -> str:
        """Write the event's log and return the path for messages; "" without a log, or if it cannot be written."""
        if not event.log:
            return ""
        relative = log_path(event.identifier)
        path = self._directory / relative
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(event.log)
        except OSError:
            return ""
        return f"{self._shown_as}/{relative}"
