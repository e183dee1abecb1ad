"""Markdown as text for a terminal, by Rich: headings and code in bold, tables without frames, links as topics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import StringIO
from typing import Any, ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markdown import CodeBlock, Heading, Markdown, TableElement
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from mlcbuild.cli.help.topics import Topic

_THEME = Theme(
    {
        "markdown.h1": "bold",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.code": "bold",
        "markdown.code_block": "none",
        "markdown.table.header": "bold",
        "markdown.table.border": "dim",
        "markdown.item.bullet": "none",
        "markdown.item.number": "none",
        "markdown.strong": "bold",
        "markdown.em": "italic",
    },
    inherit=True,
)
_LINK = re.compile(r"\[(?P<text>(?:[^\[\]`]|`[^`]*`)+)\]\((?P<address>[^)\s]+)\)")
_CODE_OF_LINES = re.compile(r"(?<!`)`(?:[^`\n]|\n(?!\n))+`(?!`)")
_CODE = re.compile(r"(?<!`)`[^`\n]+`(?!`)")
_CELL_OF_CODE = re.compile(r" *`[^`]+`(?:,? `[^`]+`)* *")
_PLAIN_PAGE = re.compile(r"(?:docs/)?[\w-]+\.md")


class _LeftHeading(Heading):
    """A heading at the left, with the signs that show its level without colour."""

    def __rich_console__(self, console: Any, options: Any) -> Any:
        text = self.text.copy()
        if self.tag == "h1":
            yield text
            yield Text("=" * min(text.cell_len, options.max_width))
        elif self.tag == "h2":
            yield text
            yield Text("-" * min(text.cell_len, options.max_width))
        else:
            yield text


class _IndentedCode(CodeBlock):
    """Code as it stands: no line of a command is broken."""

    def __rich_console__(self, console: Any, options: Any) -> Any:
        lines = str(self.text).rstrip().split("\n")
        yield Text("\n".join(f"    {line}".rstrip() for line in lines), no_wrap=True, overflow="ignore")


class _OpenTable(TableElement):
    """A table with a line under its head alone."""

    def __rich_console__(self, console: Any, options: Any) -> Any:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, border_style="markdown.table.border")
        cells = self.header.row.cells if self.header and self.header.row else []
        for cell in cells:
            heading = cell.content.copy()
            heading.stylize("markdown.table.header")
            table.add_column(heading, overflow="fold")
        for row in self.body.rows if self.body else ():
            table.add_row(*(cell.content for cell in row.cells))
        yield table


class _Page(Markdown):
    elements: ClassVar = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _IndentedCode,
        "table_open": _OpenTable,
    }


def plain_text(topic: Topic, known: Mapping[str, Topic], *, width: int, is_colored: bool) -> str:
    """The topic as lines of at most `width` columns, except for code."""
    target = StringIO()
    console = Console(
        file=target,
        width=width,
        theme=_THEME,
        force_terminal=is_colored,
        color_system="standard" if is_colored else None,
        legacy_windows=False,
        highlight=False,
        emoji=False,
    )
    console.print(_Page(_prepared(topic, known), hyperlinks=False), crop=False)
    return "".join(f"{line.rstrip()}\n" for line in target.getvalue().splitlines())


def _prepared(topic: Topic, known: Mapping[str, Topic]) -> str:
    """The Markdown as a terminal shows it best. Blocks of code stay as they are."""
    made = []
    for part in re.split(r"(^```.*?^```$)", topic.text, flags=re.DOTALL | re.MULTILINE):
        if not part.startswith("```"):
            part = _CODE_OF_LINES.sub(lambda code: re.sub(r"\n *", " ", code[0]), part)
            part = "\n".join(map(_with_signs_of_code, _without_links(part, topic, known).split("\n")))
        made.append(part)
    return "".join(made)


def _without_links(text: str, topic: Topic, known: Mapping[str, Topic]) -> str:
    """What to type in place of links to other topics, and the text alone of links within."""
    places = {(other.page, other.anchor): other for other in known.values()}
    whole = {other.page: other for other in known.values() if other.is_whole_page}

    def instead(link: re.Match[str]) -> str:
        address, _, anchor = link["address"].partition("#")
        if "://" in link["address"]:
            return link[0]
        page = address or topic.page
        other = places.get((page, anchor)) or (None if page == topic.page else whole.get(page))
        if other is None or other is topic:
            return link["text"]
        command = f"`mlcbuild help {other.name}`"
        return command if _PLAIN_PAGE.fullmatch(link["text"]) else f"{link['text']} ({command})"

    return _LINK.sub(instead, text)


def _with_signs_of_code(line: str) -> str:
    """Code keeps its backticks, which tell a command from the words around it; not where a cell has nothing else."""
    if not line.startswith("|"):
        return _CODE.sub(r"`` \g<0> ``", line)
    cells = re.split(r"(?<!\\)\|", line)
    return "|".join(cell if _CELL_OF_CODE.fullmatch(cell) else _CODE.sub(r"`` \g<0> ``", cell) for cell in cells)
