"""Writes a file completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from mlcbuild.cli.output.json_output import json_text


def write_atomically(path: Path, content: str) -> None:
    """Put `content` at `path` by renaming a finished file of the same directory. Raises OSError.

    Anything but a regular file (`/dev/stdout`, a named pipe) is written directly.
    """
    if path.exists() and not path.is_file():
        path.write_text(content, encoding="utf-8")
        return
    path = path.resolve()  # replace what a symbolic link points to, not the link
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if path.exists():
            temporary.chmod(path.stat().st_mode & 0o7777)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json_atomically(path: Path, document: object) -> None:
    """Put `document` at `path` as indented JSON. Raises OSError."""
    write_atomically(path, json_text(document, indent=2) + "\n")
