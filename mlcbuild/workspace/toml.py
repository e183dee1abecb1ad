"""TOML with places: the line and column of every key and value of a `BUILD.toml`.

Most files have no error, and their places are not needed. So a file is first parsed without places. When the first
place is needed, the same text is parsed again with places, which takes six times as long.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import toml_rs

from mlcbuild.errors import Location, WorkspaceError
from mlcbuild.regular_files import read_regular
from mlcbuild.workspace.toml_depth import DEEPEST, too_deep_at

Key = str | int
_origin = tuple.__new__  # what a named tuple's own constructor calls, after it has sorted its arguments


class Origin(NamedTuple):
    """Where a value is written: a file, and the keys and indices that lead to it."""

    file: TomlFile
    keys: tuple[Key, ...]

    def at(self, *keys: Key) -> Origin:
        """The place of a key or item inside this value."""
        return _origin(Origin, (self.file, self.keys + keys))

    @property
    def location(self) -> Location:
        """The line and column of the value. Without keys, the file."""
        return self.file.location(self.keys)

    @property
    def key_location(self) -> Location:
        """The line and column of the value's key."""
        return self.file.location(self.keys, of_key=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class TomlFile:
    """A file that `parse` has parsed. `path` is for messages: relative to the workspace root, with `/`."""

    path: str
    text: str

    def __getstate__(self) -> dict[str, Any]:
        """The text alone: parsing it again, which few do, is as quick as reading back what it says."""
        return {"path": self.path, "text": self.text}

    @functools.cached_property
    def content(self) -> Mapping[str, Any]:
        """What the text says."""
        content: Mapping[str, Any] = toml_rs.loads(self.text)
        return content

    def location(self, keys: tuple[Key, ...], *, of_key: bool = False) -> Location:
        """Where the value or its key is written.

        The place of a table with a header (`[a.b]`) is that of the first header for it or for a table in it. Raises
        LookupError for keys that do not exist.
        """
        if not keys:
            return Location(path=self.path)
        node: Any = self._nodes
        for key in keys:
            node = (node["value"] if _is_entry(node) else node)[key]
        place = None if _is_entry(node) else self._header(keys)
        place = place or _place(node, of_key=of_key)
        if place is None:
            return Location(path=self.path)
        line, column = place
        return Location(path=self.path, line=line, column=self._character_column(line, column))

    @functools.cached_property
    def _nodes(self) -> dict[str, Any]:
        nodes: dict[str, Any] = toml_rs.load_with_metadata(self.text).meta["nodes"]
        return nodes

    def _header(self, keys: tuple[Key, ...]) -> tuple[int, int] | None:
        """The place of the first `[header]` of the table or of a table in it. The parser does not report it."""
        for header, line, column in self._headers:
            if header[: len(keys)] == keys:
                return line, column
        return None

    @functools.cached_property
    def _headers(self) -> list[tuple[tuple[Key, ...], int, int]]:
        headers = []
        for number, line in enumerate(self.text.split("\n"), 1):
            text = line.strip()
            if text.startswith("[") and not text.startswith("[[") and too_deep_at(text) is None:
                # A line inside a multi-line string may look like a header.
                with contextlib.suppress(toml_rs.TOMLDecodeError):
                    headers.append((_only_path(toml_rs.loads(text)), number, line.index("[") + 1))
        return headers

    @functools.cached_property
    def _lines(self) -> list[bytes]:
        return self.text.encode().split(b"\n")

    def _character_column(self, line: int, column: int) -> int:
        """Convert the parser's column, which counts bytes, to one that counts characters."""
        return len(self._lines[line - 1][: column - 1].decode(errors="replace")) + 1


def parse(text: str, path: str) -> TomlFile:
    """Parse a file's text; `path` is for messages. Raises WorkspaceError at the place of a syntax error, and of nesting
    that no file needs."""
    if (offset := too_deep_at(text)) is not None:
        line, start = text.count("\n", 0, offset) + 1, text.rfind("\n", 0, offset)
        raise WorkspaceError(
            f"lists, tables and dotted keys nest deeper than {DEEPEST}",
            location=Location(path=path, line=line, column=offset - start),
        )
    file = TomlFile(path=path, text=text)
    try:
        file.content  # noqa: B018  # Raises what is wrong with it.
    except toml_rs.TOMLDecodeError as error:
        raise _syntax_error(error, path) from None
    return file


def read(file: Path, path: str) -> TomlFile:
    """Read and parse a file. Raises WorkspaceError if it is unreadable, not UTF-8, or not TOML."""
    try:
        content = read_regular(file)
    except OSError as error:
        raise WorkspaceError(
            f"the file cannot be read: {error.strerror or error}", location=Location(path=path)
        ) from None
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise WorkspaceError(
            f"byte {content[error.start]:#04x} is not UTF-8, the encoding of TOML",
            location=Location(path=path, line=line, column=column),
        ) from None
    return parse(text, path)


def _only_path(table: Mapping[str, Any]) -> tuple[Key, ...]:
    """The keys of nested tables with one key each."""
    path: list[Key] = []
    while table:
        key, table = next(iter(table.items()))
        path.append(key)
    return tuple(path)


def _is_entry(node: Mapping[str, Any]) -> bool:
    """Whether a dict of the parser describes one value, not the members of a table.

    Members are dicts. So a user's key named `value_raw` is not mistaken for the description of a value.
    """
    return isinstance(node.get("value_raw"), str) or isinstance(node.get("key_raw"), str)


def _place(node: Mapping[str, Any], *, of_key: bool) -> tuple[int, int] | None:
    """The first line and column (in bytes) of a node, or of its first member."""
    if _is_entry(node):
        names = ("key", "value") if of_key else ("value", "key")
        for name in names:
            if f"{name}_line" in node:
                return _first(node[f"{name}_line"]), _first(node[f"{name}_col"])
    members = (_place(member, of_key=True) for member in node.values() if isinstance(member, dict))
    return min((place for place in members if place), default=None)


def _first(number: int | tuple[int, int]) -> int:
    return number if isinstance(number, int) else number[0]


_PLACE_IN_MESSAGE = "TOML parse error at line "


def _syntax_error(error: toml_rs.TOMLDecodeError, path: str) -> WorkspaceError:
    """The parser's message has the place first, then the line, then what is wrong."""
    head, *rest = error.msg.splitlines()
    location = Location(path=path)
    if head.startswith(_PLACE_IN_MESSAGE):
        line, _, column = head.removeprefix(_PLACE_IN_MESSAGE).partition(", column ")
        if line.isdigit() and column.isdigit():
            location = Location(path=path, line=int(line), column=int(column))
    reasons = [text for text in rest if text.strip() and not text.lstrip(" 0123456789").startswith("|")]
    return WorkspaceError(f"not valid TOML: {'; '.join(reasons) or head}", location=location)
