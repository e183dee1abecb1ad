"""How many builds a workspace remembers: `[history]` of the user's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlcbuild.cli.settings.user_file import user_settings


@dataclass(frozen=True, kw_only=True)
class HistoryLimits:
    """How many builds are remembered, and in how many bytes. 0 builds: none are, and what is there is removed."""

    builds: int = 500
    bytes: int = 64 << 20


def history_limits(environment: Mapping[str, str]) -> HistoryLimits:
    """Raises WorkspaceErrors, with all errors in the file."""
    default, user = HistoryLimits(), user_settings(environment)
    return HistoryLimits(
        builds=default.builds if user.history_builds is None else user.history_builds,
        bytes=default.bytes if user.history_bytes is None else user.history_bytes,
    )
