"""Target patterns, which name many targets at once.

They mean the same as in Bazel: https://bazel.build/run/build#specifying-build-targets.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mlcbuild.errors import WorkspaceError
from mlcbuild.workspace.label import Label, LabelError, check_length, path_in_repository, quoted, read_label

MANUAL_TAG = "manual"
_ALL_NAMES = ("all", "*")


class PatternKind(enum.Enum):
    """Which targets a pattern can match."""

    TARGET = "target"  # one target
    PACKAGE = "package"  # every target of one package
    RECURSIVE = "recursive"  # every target of a package and of those below it


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """An absolute pattern. `text` is the original text.

    `name` is the target's name for kind TARGET. For the other kinds it is "", or a name with `*` for any characters,
    and only targets with such a name match.
    """

    text: str
    kind: PatternKind
    package: str
    name: str = ""
    negative: bool = False

    @property
    def label(self) -> Label:
        """The label of a pattern of kind TARGET."""
        return Label(self.package, self.name)

    def covers_package(self, package: str) -> bool:
        """Whether targets of the package can match."""
        if self.kind is PatternKind.RECURSIVE:
            if not self.package:
                return path_in_repository(package) is None
            return package == self.package or package.startswith(self.package + "/")
        return package == self.package

    def matches(self, label: Label) -> bool:
        """Whether the pattern matches the label. The sign is ignored."""
        if self.kind is PatternKind.TARGET:
            return label.package == self.package and label.name == self.name
        return self.covers_package(label.package) and (
            not self.name or _wildcard(self.name).fullmatch(label.name) is not None
        )


def parse_pattern(text: str, *, package: str = "", is_package: Callable[[str], bool] | None = None) -> Pattern:
    """Read a pattern. It is relative to `package` unless it begins with `//` or `@`.

    `//a/...`, `//a:all` (or `:*`), `//a:x`, `//a`, `a/...`, `a:x`, `:x`, and `-` in front of any of them. A name after
    a colon may contain `*` for any characters: `//a:x-*`, `//a/...:*-cuda`. `a/b`, without a colon, means the first
    that exists, as `is_package` answers for absolute packages: target `b` of the package `a/b`, target `b` of the
    package `a`, target `a/b` of the current package. Raises WorkspaceError.
    """
    negative, body = text.startswith("-"), text.removeprefix("-")
    try:
        kind, label = _read(body, package, is_package)
    except LabelError as error:
        raise WorkspaceError(f"bad target pattern {quoted(text)}: {error.message}", advice=error.advice) from None
    name = label.name if kind is PatternKind.TARGET or label.name not in _ALL_NAMES else ""
    return Pattern(text=text, kind=kind, package=label.package, name=name, negative=negative)


def select(
    patterns: Sequence[Pattern],
    candidates: Iterable[Label],
    *,
    is_manual: Callable[[Label], bool] = lambda _: False,
) -> tuple[Label, ...]:
    """The candidates that match the patterns: in the order of the patterns, then as given, each once.

    Patterns apply from left to right. A negative pattern removes matches of earlier ones, and a later pattern may add
    them again. Targets for which `is_manual` is true are added only by their own label, and removed by any negative
    pattern.
    """
    known = tuple(candidates)
    known_set = frozenset(known)
    chosen: dict[Label, None] = {}
    for pattern in patterns:
        if pattern.negative:
            chosen = {label: None for label in chosen if not pattern.matches(label)}
        elif pattern.kind is PatternKind.TARGET:
            if pattern.label in known_set:
                chosen[pattern.label] = None
        else:
            for label in known:
                if pattern.matches(label) and not is_manual(label):
                    chosen[label] = None
    return tuple(chosen)


def _read(body: str, package: str, is_package: Callable[[str], bool] | None) -> tuple[PatternKind, Label]:
    """The kind of a pattern, and a label with its package. For a wildcard its name is `all`, or a name with `*`."""
    if not body:
        raise LabelError("it is empty")
    for part in body.split(":"):
        check_length(part)
    if body.startswith("/") and not body.startswith("//"):
        raise LabelError("it begins with one slash", f'did you mean "/{body}"?')
    recursive, colon, name = body.rpartition(":")
    if colon and (recursive == "..." or recursive.endswith("/...")):
        if name not in _ALL_NAMES and "*" not in name:
            raise LabelError('after "...:" comes a name with * for any characters', "write //package/...:*-cuda")
        return PatternKind.RECURSIVE, Label(_read(recursive, package, is_package)[1].package, name)
    if body == "..." or body.endswith("/..."):
        below = body.removesuffix("...")
        if path_in_repository(below) == "":
            return PatternKind.RECURSIVE, Label(below, "all")
        below = below.removesuffix("/")
        if not body.startswith(("//", "@")):
            below = _join(package, below)
        return PatternKind.RECURSIVE, Label(below.removeprefix("//").removeprefix("/"), "all")
    if "..." in body.split("/"):
        raise LabelError('"..." is allowed only at the end', "write //package/... for everything below a package")
    before, colon, name = body.rpartition(":")
    if colon and (name in _ALL_NAMES or "*" in name):
        return PatternKind.PACKAGE, Label(_absolute(before, package), name)
    if body.startswith(("//", "@")):
        return PatternKind.TARGET, read_label(body, package)
    if colon:
        return PatternKind.TARGET, Label(_absolute(before, package), name)
    return PatternKind.TARGET, _existing(body, package, is_package)


def _existing(words: str, package: str, is_package: Callable[[str], bool] | None) -> Label:
    """Bazel's reading of words without a colon: the longest leading part that is a package."""
    if is_package is None:
        return read_label(words, package)
    if is_package(_join(package, words)):
        return read_label("//" + _join(package, words), package)
    segments = words.split("/")
    for split in range(len(segments) - 1, 0, -1):
        candidate = _join(package, "/".join(segments[:split]))
        if is_package(candidate):
            return Label(candidate, "/".join(segments[split:]))
    return read_label(words, package)


@functools.cache
def _wildcard(name: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, name.split("*"))), re.DOTALL)


def _absolute(written: str, package: str) -> str:
    return written.removeprefix("//") if written.startswith(("//", "@")) else _join(package, written)


def _join(package: str, relative: str) -> str:
    return f"{package}/{relative}" if package and relative else package or relative
