"""Checks, and parts, which are groups of checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mlcbuild.doctor.finding import Finding

USUAL_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Check:
    """One test. `examine` is called once in a separate thread, and abandoned after `seconds`."""

    name: str
    examine: Callable[[], Finding]
    seconds: float = USUAL_SECONDS
    if_silent: tuple[str, ...] = ()  # advice if it was abandoned

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"{self.name}: a deadline must be above 0: {self.seconds!r}")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Checks of one subject, in order. `name` selects the part, `subject` is a path or an address.

    `checks` is called when the part's turn comes. If it raises, the exception becomes the part's only finding. It may
    return a generator, which makes each check after the one before is done and must not raise. `close` is called after
    the last check.
    """

    name: str
    subject: str = ""
    checks: Callable[[], Iterable[Check]]
    close: Callable[[], object] = lambda: None

    @property
    def title(self) -> str:
        return f"{self.name} {self.subject}" if self.subject else self.name
