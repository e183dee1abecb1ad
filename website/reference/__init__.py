"""Pages of the site that are made from the code when the site is built, so that they are never out of date."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from website.reference.commands import commands_page

PAGES: Mapping[str, Callable[[], str]] = {"commands.md": commands_page}
"""Name of the page → what returns its Markdown."""
