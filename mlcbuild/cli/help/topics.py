"""The topics of `mlcbuild help`, as the pages of the documentation declare them. A wheel carries the pages.

A page declares a topic by a comment before a heading, which no reader of the page sees:

    <!-- help: exit-codes: what exit codes mean -->
    ## Exit codes

The topic is the text from this heading to the next one of its level or above; before the page's title, the whole page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs"
_DECLARED = re.compile(
    r"^<!-- help: (?P<name>[a-z][a-z0-9-]*): (?P<summary>[^\n]+?) -->\n+(?P<level>#+) (?P<heading>[^\n]+)$", re.M
)
_COMMENT = re.compile(r"^<!--.*?-->\n+", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A text: `page` is the name of its file, `anchor` that of its heading there, `text` its Markdown."""

    name: str
    summary: str
    page: str
    anchor: str
    is_whole_page: bool
    text: str


def topics(pages: Path = PAGES) -> dict[str, Topic]:
    """All topics by name, in alphabetical order."""
    found = [topic for path in sorted(pages.glob("*.md")) for topic in _topics_of(path)]
    return {topic.name: topic for topic in sorted(found, key=lambda topic: topic.name)}


def _topics_of(path: Path) -> Iterator[Topic]:
    text = path.read_text(encoding="utf-8")
    for declared in _DECLARED.finditer(text):
        level = len(declared["level"])
        yield Topic(
            name=declared["name"],
            summary=declared["summary"],
            page=path.name,
            anchor=anchor_of(declared["heading"]),
            is_whole_page=level == 1,
            text=_COMMENT.sub("", _section(text[declared.start("level") :], level)).strip() + "\n",
        )


def _section(text: str, level: int) -> str:
    """The text up to the next heading of the level or above; lines within blocks of code are no headings."""
    fences = [match.span() for match in _FENCE.finditer(text)]
    first_line = text.index("\n")
    for heading in re.finditer(rf"^#{{1,{level}}} ", text[first_line:], re.MULTILINE):
        place = first_line + heading.start()
        if not any(begin < place < end for begin, end in fences):
            return text[:place]
    return text


def anchor_of(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
