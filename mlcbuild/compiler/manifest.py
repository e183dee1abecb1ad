"""The manifest of a stage that discovers actions: a JSON object with a version. Stages write it, rules read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VERSION = 1


def write_manifest(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content`, which has no `version` of its own; equal contents give equal bytes."""
    text = json.dumps({"version": VERSION, **content}, sort_keys=True, separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8")


def read_manifest(data: bytes) -> dict[str, Any]:
    """Raises ValueError for a manifest of another version, and for what is no JSON object."""
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("a manifest that is no JSON object")
    if document.get("version") != VERSION:
        raise ValueError(f"a manifest of version {document.get('version')!r}, not {VERSION}")
    return document
