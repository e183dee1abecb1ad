"""Pages of the site that are made from the code when the site is built, so that they are never out of date."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from website.reference.commands import commands_page
from website.reference.outcomes import outcomes_page
from website.reference.reports import reports_page
from website.reference.settings import settings_page

PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "settings.md": settings_page,
    "exit-codes-and-errors.md": outcomes_page,
    "report-and-events.md": reports_page,
}
"""Name of the page → what returns its Markdown."""
