"""Writes JSON for programs: on standard output, and in reports."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

_ENCODER = json.JSONEncoder(ensure_ascii=False)


def json_text(document: object, *, indent: int | None = None) -> str:
    """`document` as JSON that UTF-8 can encode. Without an indent it is one line.

    A byte 0xff of a name that is not UTF-8 is written as `\\udcff`: Python's `json` and `os.fsencode` make it a byte
    again.
    """
    text = _ENCODER.encode(document) if indent is None else json.dumps(document, indent=indent, ensure_ascii=False)
    if text.isascii():
        return text
    # In JSON, all such characters are within strings, where these escapes mean what they mean in Python.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def print_json(document: object) -> None:
    """Print `document` as indented JSON; in ASCII where the locale has another encoding than UTF-8."""
    print(json_text(document, indent=2) if _is_unicode() else json.dumps(document, indent=2))


def print_json_by_rows(document: Mapping[str, object]) -> None:
    """Print an object as JSON with each item of its lists on a line of its own, for lists of thousands of items.

    Python's encoder takes several times longer with an indent.
    """
    write = json_text if _is_unicode() else json.dumps
    members = []
    for name, value in document.items():
        if isinstance(value, list) and value:
            rows = ",\n".join(f"    {write(item)}" for item in value)
            members.append(f"  {write(name)}: [\n{rows}\n  ]")
        else:
            members.append(f"  {write(name)}: {write(value)}")
    print("{\n" + ",\n".join(members) + "\n}")


def _is_unicode() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("_", "-") in ("utf-8", "utf8")
