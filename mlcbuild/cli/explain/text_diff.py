"""The differences of a text file, as lines that people read."""

from __future__ import annotations

import difflib

from mlcbuild.cache.digest import Digest

_MOST_LINES = 20
_LARGEST_BYTES = 1 << 20


def component_digest(component: str) -> Digest:
    """The digest of an input's component, `HASH/SIZE` or `HASH/SIZE executable`."""
    content, _, size = component.partition(" ")[0].partition("/")
    return Digest(content, int(size))


def text_diff(before: bytes | None, now: bytes | None) -> list[str]:
    """A unified diff without its head. None for a file that is missing, and one that is large or no text."""
    if before is None or now is None or max(len(before), len(now)) > _LARGEST_BYTES:
        return []
    try:
        old, new = before.decode().splitlines(), now.decode().splitlines()
    except UnicodeDecodeError:
        return []
    lines = list(difflib.unified_diff(old, new, n=1, lineterm=""))[2:]
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"… and {len(lines) - _MOST_LINES:,} more lines"]
    return lines
