"""The result of a check: a verdict, what was measured, and advice."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

Figure = str | int | float | bool | None


class Verdict(enum.Enum):
    """The verdict; its value is what people read."""

    OK = "ok"
    WARNING = "warning"  # builds work, but slower or less safely
    ERROR = "error"  # builds fail, or do without what was configured
    SKIPPED = "skipped"  # there is nothing to test, or it is not allowed


class FindingCause(enum.Enum):
    """What causes an error, and so where to fix it."""

    SETTINGS = "settings"  # an option, a variable, a settings file, `[remote]`
    TARGETS = "targets"  # a BUILD.toml
    MACHINE = "machine"  # this machine, the network, a server
    MLCBUILD = "mlcbuild"  # a bug of ours


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`measured` is one line without a period. `advice` has one hint a line. `figures` are for programs: durations in
    seconds, sizes in bytes. No field holds a credential.
    """

    verdict: Verdict
    measured: str
    advice: tuple[str, ...] = ()
    cause: FindingCause = FindingCause.MACHINE
    figures: Mapping[str, Figure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.measured or "\n" in self.measured:
            raise ValueError(f"what was measured must be one line: {self.measured!r}")


def ok(measured: str, *advice: str, **figures: Figure) -> Finding:
    return Finding(verdict=Verdict.OK, measured=measured, advice=advice, figures=figures)


def warning(measured: str, *advice: str, **figures: Figure) -> Finding:
    return Finding(verdict=Verdict.WARNING, measured=measured, advice=advice, figures=figures)


def failed(measured: str, *advice: str, **figures: Figure) -> Finding:
    """An error of the machine, the network or a server."""
    return Finding(verdict=Verdict.ERROR, measured=measured, advice=advice, figures=figures)


def wrong_setting(measured: str, *advice: str) -> Finding:
    """An error in a setting."""
    return Finding(verdict=Verdict.ERROR, measured=measured, advice=advice, cause=FindingCause.SETTINGS)


def skipped(measured: str, *advice: str) -> Finding:
    return Finding(verdict=Verdict.SKIPPED, measured=measured, advice=advice)
