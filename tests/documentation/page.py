"""A page of the documentation as steps: its commands, the output that it shows for them, and the files that it shows.

What the page says to the harness stands in HTML comments, which no reader sees.

Once on a page that has commands, anywhere:
    <!-- world: NAME -->                  run its blocks in one folder, made by the function NAME of `worlds.py`
    <!-- followed by: tests/….py -->      the test in that file runs them, by `follow`
    <!-- not run: REASON -->              at the top of the page, before its first heading: none of them is run

Directly before a block:
    <!-- not run: REASON -->              the reason appears in `not_run.txt`
    <!-- exit code: N -->                 of the block's last command; it is 0 otherwise
    <!-- file: PATH -->                   the block is written to this file of the world
    <!-- append to: PATH -->              the block is added to this file
    <!-- not written: REASON -->          the block is not the file that its first line names
    <!-- in: PATH -->                     the block stands in this file: its paragraphs do, in this order

Anywhere: what the prose asks the reader to do, such as an edit.
    <!-- run: COMMANDS -->                also over several lines

Blocks marked `sh` are shell commands without output; blocks marked `console` show commands after `$ ` and what they
print, on both streams, as a terminal shows it.
A block whose first line is a comment with a path (`# passes/mine.py`) is that file. Other blocks are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_COMMENT = re.compile(r"<!--\s*(?P<name>[a-z ]+):\s*(?P<value>.*?)\s*-->", re.DOTALL)
_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<language>[^\n`]*)\n(?P<text>.*?)^ *(?P=fence)[ ]*$", re.M | re.S
)
_PIECE = re.compile(f"{_FENCE.pattern}|{_COMMENT.pattern.replace('(?P<name>', '(?P<directive>')}", re.M | re.S)
_FILE_COMMENT = re.compile(r"(?:#|//) ([\w.-]+(?:/[\w.-]+)*\.\w+)\n")
_OF_THE_PAGE = ("world", "followed by")
_OF_A_BLOCK = ("not run", "exit code", "file", "append to", "in", "not written")
COMMAND_LANGUAGES = ("sh", "console")


class PageError(Exception):
    """A page that the harness cannot read; the message begins with `page.md:line`."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block: its language, its text, the line of its fence, and the comments before it by name."""

    language: str
    text: str
    line: int
    directives: dict[str, str] = field(default_factory=dict)

    @property
    def not_run(self) -> str:
        """The reason for which the block is not run, or ""."""
        return self.directives.get("not run", "")

    @property
    def has_commands(self) -> bool:
        return self.language in COMMAND_LANGUAGES

    def commands(self) -> tuple[Command, ...]:
        """The commands of a block `console`, each with its output; a block `sh` is one command without."""
        code = int(self.directives.get("exit code", 0))
        if self.language == "sh":
            return (Command(text=self.text, output=None, line=self.line + 1, exit_code=code),)
        found: list[tuple[int, list[str], list[str]]] = []
        is_going_on = False
        for number, line in enumerate(self.text.splitlines(), self.line + 1):
            if line.startswith("$ "):
                found.append((number, [line[2:]], []))
                is_going_on = line.endswith("\\")
            elif found and not found[-1][2] and (is_going_on or line.startswith("> ")):
                found[-1][1].append(line.removeprefix("> "))
                is_going_on = line.endswith("\\")
            elif found:
                found[-1][2].append(line)
            else:
                raise PageError(f"line {number}: a block `console` begins with a command, after `$ `")
        made = []
        for index, (number, command, output) in enumerate(found):
            following = found[index + 1] if index + 1 < len(found) else None
            expected = code if following is None else 0
            if following and following[1] == ["echo $?"]:
                expected = int("".join(following[2]))
            text, shown = "\n".join(command) + "\n", "\n".join(output)
            made.append(Command(text=text, output=shown, line=number, exit_code=expected))
        return tuple(made)

    @property
    def file(self) -> str:
        """The path of the file that the block is, or ""."""
        if "not written" in self.directives:
            return ""
        if named := self.directives.get("file"):
            return named
        comment = _FILE_COMMENT.match(self.text)
        return comment[1] if comment and not self.has_commands else ""

    @property
    def content(self) -> str:
        """The text, less the comment that names the file."""
        return _FILE_COMMENT.sub("", self.text, count=1) if "file" not in self.directives else self.text


@dataclass(frozen=True, kw_only=True)
class Command:
    """Shell commands, the output that the page shows (None: it shows none), and the exit code that is expected."""

    text: str
    output: str | None
    line: int
    exit_code: int


@dataclass(frozen=True, kw_only=True)
class Page:
    """`steps` has the blocks and the hidden commands, in the order of the page."""

    path: Path
    world: str
    followed_by: str
    not_run: str
    steps: tuple[Block, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(step for step in self.steps if step.language != "hidden")

    @property
    def has_commands(self) -> bool:
        return any(block.has_commands for block in self.blocks)

    def reason_for(self, block: Block) -> str:
        """Why this block is not run, or ""."""
        return block.not_run or self.not_run


def read_page(path: Path) -> Page:
    """The page. Raises PageError."""
    text = path.read_text(encoding="utf-8")
    first_heading = re.search(r"^# ", text, re.MULTILINE)
    begin = first_heading.start() if first_heading else 0
    of_page: dict[str, str] = {}
    steps = []
    pending: dict[str, str] = {}
    for kind, name, value, line, start in _pieces(text):
        if kind == "block":
            steps.append(Block(language=name, text=value, line=line, directives=pending))
            pending = {}
        elif name == "run":
            steps.append(Block(language="hidden", text=value + "\n", line=line))
        elif name in _OF_THE_PAGE or (name == "not run" and start < begin):
            of_page[name] = value
        elif name == "help":
            continue  # A topic of `mlcbuild help`.
        elif name in _OF_A_BLOCK:
            pending[name] = value
        else:
            raise PageError(f"{path.name}:{line}: unknown comment <!-- {name}: … -->")
    if pending:
        raise PageError(f"{path.name}: no block after <!-- {next(iter(pending))}: … -->")
    return Page(
        path=path,
        world=of_page.get("world", ""),
        followed_by=of_page.get("followed by", ""),
        not_run=of_page.get("not run", ""),
        steps=tuple(steps),
    )


def _pieces(text: str) -> Iterator[tuple[str, str, str, int, int]]:
    """Blocks and comments: their kind, language or name, text, line, and position."""
    for match in _PIECE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["fence"]:
            indent = len(match["indent"])
            lines = (each[indent:] if not each[:indent].strip() else each for each in match["text"].splitlines(True))
            language = match["language"].strip().partition(" ")[0]
            yield "block", language, "".join(lines), line, match.start()
        else:
            yield "comment", match["directive"], match["value"], line, match.start()
