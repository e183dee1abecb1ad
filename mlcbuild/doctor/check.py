"""Checks and the parts that they come in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mlcbuild.doctor.finding import Finding

USUAL_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing to try. `examine` is called once, in a thread of its own, and given up after `seconds`."""

    name: str
    examine: Callable[[], Finding]
    seconds: float = USUAL_SECONDS
    if_silent: tuple[str, ...] = ()  # advice where it was given up

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"{self.name}: a deadline has to be above 0: {self.seconds!r}")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Checks of one subject, in order. `name` is what people ask for, `subject` which one it is: a path, an address.

    `checks` is called when the part's turn comes; what it raises becomes the part's only finding. It may answer with a
    generator, which makes a check when the one before is done, and raises nothing. `close` is called after the last.
    """

    name: str
    subject: str = ""
    checks: Callable[[], Iterable[Check]]
    close: Callable[[], object] = lambda: None

    @property
    def title(self) -> str:
        return f"{self.name} {self.subject}" if self.subject else self.name
