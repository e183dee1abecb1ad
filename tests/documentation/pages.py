"""All pages of the documentation."""

from __future__ import annotations

from pathlib import Path

from tests.documentation.page import Page, read_page

PROJECT = Path(__file__).parents[2]


def paths() -> list[Path]:
    """README.md, ARCHITECTURE.md, CHANGELOG.md and the pages of docs/."""
    return [*sorted(PROJECT.glob("*.md")), *sorted((PROJECT / "docs").glob("*.md"))]


def pages() -> list[Page]:
    """Each of them as it was read. Raises PageError."""
    return [read_page(path) for path in paths()]
