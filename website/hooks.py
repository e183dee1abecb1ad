"""What mkdocs does beyond its configuration: pages from outside of docs/, and pages that are made from the code.

mkdocs calls these functions by their names (https://www.mkdocs.org/user-guide/configuration/#hooks).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PROJECT = Path(__file__).parents[1]
if str(PROJECT) not in sys.path:
    sys.path.insert(0, str(PROJECT))

from website.draw_diagrams import with_drawings  # noqa: E402
from website.reference import PAGES  # noqa: E402

# Pages at the root of the project, by their names in the site.
_FROM_THE_ROOT = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md"}
_LINK_TO_THE_ROOT = re.compile(rf"\]\(\.\./({'|'.join(map(re.escape, _FROM_THE_ROOT))})")
_LINK_INTO_DOCS = re.compile(r"\]\(docs/([\w-]+\.md)")
_COMMENT = re.compile(r"^<!--.*?-->\n?", re.DOTALL | re.MULTILINE)
_LINK_BY_NAME = re.compile(r"\[((?:docs/)?[\w-]+\.md)\]\(([\w-]+\.md)(#[\w-]+)?\)")
_CODE_IN_A_ROW = re.compile(r"`[^`\n]*`")
_ITEM = re.compile(r"(?:-|\d\.) (?=\S)")
_LONG = 34  # characters of code in a table that is broken rather than widening its column


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for source, name in _FROM_THE_ROOT.items():
        text = (PROJECT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_LINK_INTO_DOCS.sub(r"](\1", text)))
    for name, make in PAGES.items():
        files.append(File.generated(config, name, content=make()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to pages of the root lead to their names in the site, and links named by a file get the page's title.

    Comments, which are for tests alone, are left out.
    """
    drawn = with_drawings(_COMMENT.sub("", markdown))
    linked = _LINK_TO_THE_ROOT.sub(lambda match: f"]({_FROM_THE_ROOT[match[1]]}", drawn)
    named = _LINK_BY_NAME.sub(
        lambda match: f"[{_title(match[2], match[1], files)}]({match[2]}{match[3] or ''})", linked
    )
    return "\n".join(_row(line) if line.lstrip().startswith("|") else line for line in _lists(named.split("\n")))


def _lists(lines: list[str]) -> Iterator[str]:
    """What belongs to an item of a list stands below its text, as on GitHub; this Markdown wants four spaces for it."""
    added = ""
    is_code = False
    for line in lines:
        if item := _ITEM.match(line):
            added = " " * (4 - len(item[0]))
        elif line and not line.startswith(" "):
            is_code ^= line.startswith("```")
            added = ""
        yield f"{added}{line}" if line.startswith(" ") and not is_code else line


def _title(name: str, otherwise: str, files: Files) -> str:
    file = files.get_file_from_path(name)
    heading = re.search(r"^# (.+)$", file.content_string, re.MULTILINE) if file else None
    return heading[1] if heading else otherwise


def _row(line: str) -> str:
    """A row of a table: bars in code need no escape here, other than on GitHub; long code may be broken."""

    def code(match: re.Match[str]) -> str:
        text = match[0].replace("\\|", "|")
        return f"{text}{{.long}}" if len(text) > _LONG else text

    return _CODE_IN_A_ROW.sub(code, line)
