"""The text of a new `BUILD.toml`: tables with comments, in the form that a person would write."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.errors import LocalEnvironmentError, UsageError, WorkspaceError
from mlcbuild.workspace.settings import find_root

Value = str | int | bool | Sequence["Value"] | Mapping[str, "Value"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")
_WIDTH = 80
_INTRODUCTION = """\
# What is built, and for which platforms. `mlcbuild info` lists all rules and
# their attributes. Builds write to mlcbuild-out/ and .mlcbuild/: keep both out
# of version control.
"""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One target, or the table `[workspace]`. `comment` stands above it; with `is_example` all of it is a comment."""

    rule: str
    values: Mapping[str, Value]
    comment: str = ""
    is_list: bool = True
    is_example: bool = False

    def text(self) -> str:
        """The table in TOML, with a line end."""
        header = f"[[{self.rule}]]" if self.is_list else f"[{self.rule}]"
        lines = [header, *(f"{key} = {toml_value(value)}" for key, value in self.values.items())]
        if self.is_example:
            lines = [f"# {line}" for line in lines]
        return "\n".join([*wrapped(self.comment), *lines, ""])


def build_text(tables: Iterable[Table]) -> str:
    """The whole file."""
    return "\n".join([_INTRODUCTION, *(table.text() for table in tables)])


def toml_value(value: Value) -> str:
    """A value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # A JSON string is one in TOML as well.
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(key)} = {toml_value(each)}" for key, each in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    return f"[{', '.join(map(toml_value, value))}]"


def wrapped(comment: str) -> list[str]:
    """The lines of a comment. Lines of `comment` that are longer than the width are broken at spaces."""
    lines: list[str] = []
    for line in comment.splitlines():
        words = line.split(" ")
        current = "#"
        for word in words:
            if len(current) + len(word) >= _WIDTH and current != "#":
                lines.append(current)
                current = "#"
            current += f" {word}"
        lines.append(current.rstrip())
    return lines


def target_name(text: str) -> str:
    """A target's name from the name of a file, folder or model: lower-case letters, digits, `.`, `_` and `-`."""
    return _NOT_IN_NAMES.sub("-", text.lower()).strip("-.") or "model"


def check_place(root: Path, file: Path) -> list[str]:
    """Raise UsageError unless a new file can be written at `root`. Answers notes about the place."""
    if not root.is_dir():
        raise UsageError(f"{root} is not a directory", advice=("make it first",))
    if os.path.lexists(file):
        raise UsageError(f"{file} exists already; nothing was written", advice=("add to it, or move it away first",))
    try:
        around = find_root(root)
    except WorkspaceError:
        return []
    return [
        f"this folder is below the workspace {around}, and has become one of its own",
        f"  to make it a package of that workspace instead, remove [workspace] from {file.name}",
    ]


def write_new(file: Path, text: str) -> None:
    """Write a file that does not exist. Raises UsageError where it does, LocalEnvironmentError where it cannot be."""
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise UsageError(f"{file} exists already; nothing was written") from None
    except OSError as error:
        raise LocalEnvironmentError(f"{file} cannot be written: {error.strerror or error}") from error


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)
