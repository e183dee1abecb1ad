"""Writes JSON for programs: on standard output, and in reports."""

from __future__ import annotations

import json
import sys


def json_text(document: object, *, indent: int | None = None) -> str:
    """`document` as JSON that UTF-8 can encode. Without an indent it is one line.

    A byte 0xff of a name that is not UTF-8 is written as `\\udcff`: Python's `json` and `os.fsencode` make it a byte
    again.
    """
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    # In JSON, all such characters are within strings, where these escapes mean what they mean in Python.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def print_json(document: object) -> None:
    """Print `document` as indented JSON; in ASCII where the locale has another encoding than UTF-8."""
    text = json_text(document, indent=2)
    is_unicode = getattr(sys.stdout, "encoding", "utf-8").lower().replace("_", "-") in ("utf-8", "utf8")
    print(text if is_unicode else json.dumps(document, indent=2))
