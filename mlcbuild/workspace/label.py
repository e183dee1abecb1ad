"""Labels: the names of targets, `//package:name`, or `@repository//:name` for those that every workspace has.

Syntax and allowed characters follow Bazel: https://bazel.build/concepts/labels.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from mlcbuild.errors import Location, WorkspaceError

_ALPHANUMERIC = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_NAME_CHARACTERS = frozenset(_ALPHANUMERIC + "!%-@^_\"#$&'()*+,;<=>?[]{|}~/. ")
_PACKAGE_CHARACTERS = _NAME_CHARACTERS
_LONGEST_PATH = 1024  # characters of a package or a name; Linux has paths of 4,095 bytes
_LONGEST_SEGMENT = 255  # bytes of a file name in Linux
_MOST_SHOWN = 100
_PLAIN = re.compile(rf"[\w-][\w.-]{{0,{_LONGEST_SEGMENT - 1}}}", re.ASCII)  # what most packages and names are like


class LabelError(ValueError):
    """Why a text is not a label, and what to write instead. Has no place; the caller makes a WorkspaceError."""

    def __init__(self, message: str, *advice: str) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


class _Parts(NamedTuple):
    package: str
    name: str


class Label(_Parts):
    """The name of a target, or of a file in a package. Raises LabelError (a ValueError) for a bad part.

    `package` is the folder's path from the workspace root, with `/`; "" is the root package. Packages of a built-in
    repository are written `@repository//path`, which is the path of no folder.
    """

    # A tuple, because Python hashes and compares these without running code of ours, and a load does so very often.
    __slots__ = ()

    def __new__(cls, package: str, name: str) -> Label:
        # There may be ten thousand labels, nearly all of them plain. One look at each is the fastest check.
        if _PLAIN.fullmatch(name) is not None and _PLAIN.fullmatch(package) is not None:
            return tuple.__new__(cls, (package, name))
        if not _PACKAGE_CHARACTERS.issuperset(package) or not _is_relative_path(package, empty=True):
            inside = path_in_repository(package)
            if inside is None or not _is_relative_path(inside, empty=True):
                raise LabelError(_package_error(package))
        for path in (package, name):
            check_length(path)
        if not _NAME_CHARACTERS.issuperset(name) or not _is_relative_path(name, empty=False):
            raise LabelError(_name_error(name))
        return super().__new__(cls, package, name)

    def __str__(self) -> str:
        return f"{shown_package(self.package)}:{self.name}"

    @property
    def path(self) -> str:
        """The path of a file with this label, from the workspace root."""
        return f"{self.package}/{self.name}" if self.package else self.name


def check_length(path: str) -> None:
    """Raise LabelError for a path that no file of the workspace could have."""
    if len(path) <= _LONGEST_SEGMENT:
        return
    if len(path) > _LONGEST_PATH:
        raise LabelError(f"it is longer than {_LONGEST_PATH:,} characters")
    if max(map(len, path.split("/"))) > _LONGEST_SEGMENT:
        raise LabelError(f"a name in it is longer than {_LONGEST_SEGMENT} characters")


def quoted(text: str) -> str:
    """A text of a user for a message; of a very long one the beginning."""
    return f'"{text}"' if len(text) <= 2 * _MOST_SHOWN else f'"{text[:_MOST_SHOWN]}…"'


def path_in_repository(package: str) -> str | None:
    """The path of a package in its built-in repository; None for a package of the workspace."""
    if not package.startswith("@"):
        return None
    name, slashes, path = package.partition("//")
    return path if slashes and len(name) > 1 and "/" not in name else None


def shown_package(package: str) -> str:
    """A package as labels name it: `//models`, `@platforms//`."""
    return f"//{package}" if path_in_repository(package) is None else package


def parse_label(text: str, *, package: str, location: Location | None = None) -> Label:
    """Read `//pkg:name`, `//pkg` (short for `//pkg:last-segment`), `:name` or `name`, relative to `package`; and
    `@repository//pkg:name`.

    Raises WorkspaceError at `location` for anything else.
    """
    try:
        return read_label(text, package)
    except LabelError as error:
        raise WorkspaceError(
            f"bad label {quoted(text)}: {error.message}", location=location, advice=error.advice
        ) from None


@functools.lru_cache(maxsize=1 << 16)
def read_label(text: str, package: str) -> Label:
    """Like `parse_label`, for callers that determine the place only after an error. Raises LabelError."""
    if text.startswith(("//", "@")):
        target_package, colon, name = text.removeprefix("//").partition(":")
        inside = path_in_repository(target_package)
        if text.startswith("@") and inside is None:
            raise LabelError("it names no repository", "targets that are built in are written @repository//:name")
        if not colon:
            name = (target_package if inside is None else inside).rpartition("/")[2]
            if not name:
                raise LabelError(
                    "it names no target", f"the root package's targets are written {shown_package(target_package)}:name"
                )
        elif not name:
            raise LabelError("it ends in a colon and names no target")
    else:
        target_package, name = package, text.removeprefix(":")
        if not name:
            raise LabelError("it names no target" if text else "it is empty")
        if text.startswith("/"):
            raise LabelError("it begins with one slash", f'did you mean "/{text}"?')
        if ":" in name:
            advice = () if text.startswith(":") else (f'did you mean "//{name}"?',)
            raise LabelError("a package is written with two slashes in front", *advice)
    if name == "..." or name.endswith("/..."):
        raise LabelError("this is a pattern, but a single target is needed here")
    return label_of(target_package, name)


@functools.lru_cache(maxsize=1 << 16)
def label_of(package: str, name: str) -> Label:
    """`Label(package, name)`, as the same object each time: a label takes longer to keep than to name once more."""
    return Label(package, name)


def _is_relative_path(text: str, *, empty: bool) -> bool:
    """Whether no segment is empty, `.` or `..`."""
    if not text:
        return empty
    if "/" not in text:
        return text not in (".", "..")
    return not any(segment in ("", ".", "..") for segment in text.split("/"))


def _package_error(package: str) -> str:
    return _path_error("package", package, _PACKAGE_CHARACTERS)


def _name_error(name: str) -> str:
    return _path_error("target name", name, _NAME_CHARACTERS) if name else "a target name is empty"


def _path_error(what: str, text: str, allowed: frozenset[str]) -> str:
    named = f"{what} {quoted(text)}"
    for character in text:
        if character not in allowed:
            shown = "a control character" if ord(character) < 32 else f'"{character}"'
            return f"{named} contains {shown}, which is not allowed there"
    if text.startswith("/") or text.endswith("/"):
        return f"{named} begins or ends with a slash"
    if "//" in text:
        return f"{named} contains an empty path segment"
    return f'{named} contains the path segment "." or ".."'
