"""What a check found: a verdict, what was measured, and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

Figure = str | int | float | bool | None


class Verdict(enum.Enum):
    """How it stands; the value is what people read."""

    OK = "ok"
    WARNING = "warning"  # builds go on, slower or less safely
    PROBLEM = "problem"  # builds fail, or do without what was configured
    SKIPPED = "skipped"  # there was nothing to try, or no leave to try it


class Blame(enum.Enum):
    """Where a problem is mended."""

    SETTINGS = "settings"  # an option, a variable, a settings file, `[remote]`
    TARGETS = "targets"  # a BUILD.toml
    MACHINE = "machine"  # this machine, the network, a server
    MLCBUILD = "mlcbuild"  # a bug of ours


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`measured` is one line without a period; `advice` has one hint a line; `figures` are for programs: durations in
    seconds, sizes in bytes. None of it holds a credential.
    """

    verdict: Verdict
    measured: str
    advice: tuple[str, ...] = ()
    blame: Blame = Blame.MACHINE
    figures: Mapping[str, Figure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.measured or "\n" in self.measured:
            raise ValueError(f"what was measured is one line: {self.measured!r}")


def ok(measured: str, *advice: str, **figures: Figure) -> Finding:
    return Finding(verdict=Verdict.OK, measured=measured, advice=advice, figures=figures)


def warning(measured: str, *advice: str, **figures: Figure) -> Finding:
    return Finding(verdict=Verdict.WARNING, measured=measured, advice=advice, figures=figures)


def problem(measured: str, *advice: str, **figures: Figure) -> Finding:
    """Of the machine, the network, a server."""
    return Finding(verdict=Verdict.PROBLEM, measured=measured, advice=advice, figures=figures)


def mistake(measured: str, *advice: str) -> Finding:
    """A problem that a setting makes."""
    return Finding(verdict=Verdict.PROBLEM, measured=measured, advice=advice, blame=Blame.SETTINGS)


def skipped(measured: str, *advice: str) -> Finding:
    return Finding(verdict=Verdict.SKIPPED, measured=measured, advice=advice)
