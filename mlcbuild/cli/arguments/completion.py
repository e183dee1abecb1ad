"""Completion in a shell: packages, labels and configurations.

BUILD.toml files are searched by regular expressions instead of being loaded, because an answer must come at once, also
from a file that is being edited. Names that a matrix makes are not offered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path

_BUILD_FILE = "BUILD.toml"
_NAME = re.compile(r"""^\s*name\s*=\s*["']([^"'{]+)["']""", re.MULTILINE)
# [workspace] and such, which have names that are no targets', up to the next table.
_HEAD = r"[A-Za-z_][^\[\]\n]*"  # a line of an array, such as [1, 8], begins no table
_TABLE = rf"^\s*\[{_HEAD}\]\s*(?:#.*)?$"
_ANY_TABLE = rf"{_TABLE}|^\s*\[\[{_HEAD}\]\]"
_NO_TARGETS = re.compile(rf"{_TABLE}(?s:.*?)(?={_ANY_TABLE}|\Z)", re.MULTILINE)
_WORKSPACE = re.compile(r"^\s*\[workspace\]", re.MULTILINE)
_CONFIGURATION = re.compile(r"""^\s*\[configuration\.["']?([\w.-]+?)["']?\]""", re.MULTILINE)
_HIDDEN = re.compile(r"^\.|^mlcbuild-out$")


def rejoin_bash_words(environment: MutableMapping[str, str]) -> str:
    """Join the parts of the word that is being completed; return the part that Bash does not replace.

    Bash splits words at colons: of `//models:sm` it completes `sm`. This changes COMP_WORDS and COMP_CWORD so that the
    word is `//models:sm`. The caller removes the returned prefix, `//models:`, from the offers.
    """
    words, index = environment["COMP_WORDS"].split(), int(environment["COMP_CWORD"])
    words += [""] * (index + 1 - len(words))
    colon = index if words[index] == ":" else index - 1
    if words[colon] != ":":
        return ""
    first = colon - 1 if words[colon - 1].startswith(("//", "-//", "@", "-@")) else colon
    environment["COMP_WORDS"] = "\n".join([*words[:first], "".join(words[first : index + 1])])
    environment["COMP_CWORD"] = str(first)
    return "".join(words[first : colon + 1])


def complete_pattern(incomplete: str) -> list[str]:
    """Patterns that begin with `incomplete`: `:all` and `/...` of packages, and labels of targets after a colon."""
    negative = "-" if incomplete.startswith("-") else ""
    found = list(_patterns(incomplete.removeprefix("-"), Path.cwd()))
    return [f"{negative}{pattern}" for pattern in found]


def complete_configuration(incomplete: str) -> list[str]:
    """Names of this workspace's configurations that begin with `incomplete`."""
    root = _root_above(Path.cwd())
    names = _CONFIGURATION.findall(_text_of(root)) if root else []
    return sorted({name for name in names if name.startswith(incomplete)})


def complete_topic(incomplete: str) -> list[str]:
    """Topics of `mlcbuild help` that begin with `incomplete`."""
    from mlcbuild.cli.help.topics import topics

    return [name for name in topics() if name.startswith(incomplete)]


def complete_build(incomplete: str) -> list[str]:
    """Numbers of recorded builds."""
    from mlcbuild.cli.log.records import records

    return [str(number) for number in range(1, len(records(_records())) + 1) if str(number).startswith(incomplete)]


def complete_mnemonic(incomplete: str) -> list[str]:
    """Mnemonics of the actions of the last recorded build."""
    from mlcbuild.cli.log.records import iterate

    newest = next(iterate(_records()), None)
    actions = newest.actions() if newest else ()
    return sorted({action["mnemonic"] for action in actions if action["mnemonic"].startswith(incomplete)})


def _records() -> Path:
    return (_root_above(Path.cwd()) or Path()) / ".mlcbuild" / "builds"


def _patterns(incomplete: str, directory: Path) -> Iterator[str]:
    root = _root_above(directory)
    if root is None:
        return
    if incomplete.startswith("@"):
        yield from (pattern for pattern in _built_in() if pattern.startswith(incomplete))
        return
    if incomplete.startswith(":"):
        yield from (f":{name}" for name in _names(directory) if name.startswith(incomplete[1:]))
        return
    package, colon, name = incomplete.removeprefix("//").partition(":")
    if colon:
        yield from (f"//{package}:{found}" for found in _names(root / package) if found.startswith(name))
        return
    if not (incomplete.startswith("//") or "//".startswith(incomplete)):
        return
    parent, _, start = package.removeprefix("/").rpartition("/")
    prefix = f"//{parent}/" if parent else "//"
    for entry in sorted(_folders(root / parent)):
        if entry.startswith(start):
            folder = root / parent / entry
            if (folder / _BUILD_FILE).is_file():
                yield f"{prefix}{entry}:all"
            if any(_folders(folder)) or (folder / _BUILD_FILE).is_file():
                yield f"{prefix}{entry}/..."


def _built_in() -> list[str]:
    """Labels and the wildcard of what every workspace has."""
    from mlcbuild.rules.repositories import repositories

    return [f"@{name}//:{found}" for name, text in repositories().items() for found in (*_NAME.findall(text), "all")]


def _folders(directory: Path) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            yield from (entry.name for entry in entries if entry.is_dir() and not _HIDDEN.match(entry.name))
    except OSError:
        return


def _names(package: Path) -> list[str]:
    return [*sorted(set(_NAME.findall(_NO_TARGETS.sub("", _text_of(package))))), "all"]


def _text_of(package: Path) -> str:
    try:
        return (package / _BUILD_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _root_above(directory: Path) -> Path | None:
    return next((folder for folder in (directory, *directory.parents) if _WORKSPACE.search(_text_of(folder))), None)
