"""Tells of targets that wildcards match and that cannot be built for their platform."""

from __future__ import annotations

from mlcbuild.cli.output import text
from mlcbuild.rules.analysis import Analysis

REASONS = "`mlcbuild matrix` tells why"


def skipped_notes(analysis: Analysis, *, reasons: str = REASONS) -> list[str]:
    """A note, or none. `reasons` says how to find out more."""
    count = len(analysis.skipped)
    if not count:
        return []
    them = "it cannot be built for its" if count == 1 else "they cannot be built for their"
    return [f"{text.plural(count, 'target')} skipped: {them} platform ({reasons})"]
