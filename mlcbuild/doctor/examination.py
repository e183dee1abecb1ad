"""Carries checks out, each within its deadline: whatever a check does, it ends as a finding."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.doctor.check import Check, Part
from mlcbuild.doctor.finding import Blame, Finding, Verdict, problem
from mlcbuild.errors import InternalError, MlcbuildError, UsageError, WorkspaceError, WorkspaceErrors

_TICK_SECONDS = 0.1
_PREPARING = "settings"


class UnreadableWorkspace(WorkspaceErrors):
    """What keeps a workspace from being opened: mistakes in its own files, not in anybody's settings."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    """A finding with where it belongs; `seconds` is what the check took, `failure` the story of a check that broke."""

    part: Part
    name: str
    finding: Finding
    seconds: float
    failure: str = ""


def examine_all(parts: Iterable[Part], *, tick: Callable[[str, float], object]) -> Iterator[Examined]:
    """Examine in order. `tick` is told what is tried, and for how many seconds, ten times a second."""
    for part in parts:
        try:
            checks = part.checks()
        except Exception as error:
            finding, story = _told(error)
            yield Examined(part=part, name=_PREPARING, finding=finding, seconds=0.0, failure=story)
            continue
        try:
            for check in checks:
                yield examine(part, check, tick=tick)
        finally:
            part.close()


def examine(part: Part, check: Check, *, tick: Callable[[str, float], object] = lambda *_: None) -> Examined:
    """The finding of one check. One that is silent is left behind in its thread, which keeps no process alive."""
    answers: queue.SimpleQueue[tuple[Finding, str]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((check.examine(), ""))
        except BaseException as error:
            answers.put(_told(error))

    began = time.monotonic()
    threading.Thread(target=run, name=f"doctor {check.name}", daemon=True).start()
    while True:
        seconds = time.monotonic() - began
        try:
            finding, story = answers.get(timeout=min(_TICK_SECONDS, max(check.seconds - seconds, 0.001)))
        except queue.Empty:
            seconds = time.monotonic() - began
            if seconds < check.seconds:
                tick(f"{part.name}: {check.name}", seconds)
                continue
            finding, story = problem(f"no answer within {check.seconds:g} s", *check.if_silent), ""
        return Examined(part=part, name=check.name, finding=finding, seconds=time.monotonic() - began, failure=story)


def of_error(error: MlcbuildError, *, blame: Blame | None = None) -> Finding:
    """A finding of an error that a user can meet: its message, and its advice."""
    told = [error] if not isinstance(error, WorkspaceErrors) else list(error.errors)
    first, *rest = (f"{each.location}: {each.message}" if each.location else each.message for each in told)
    line, *more = first.splitlines() or [type(error).__name__]
    advice = [*more, *(hint for each in told[:1] for hint in each.advice), *rest]
    return Finding(
        verdict=Verdict.PROBLEM,
        measured=line,
        advice=tuple(row for hint in advice for row in hint.splitlines()),
        blame=blame or _blame(error),
    )


def _blame(error: MlcbuildError) -> Blame:
    if isinstance(error, UnreadableWorkspace):
        return Blame.TARGETS
    if isinstance(error, UsageError | WorkspaceError):
        return Blame.SETTINGS
    return Blame.MLCBUILD if isinstance(error, InternalError) else Blame.MACHINE


def _told(error: BaseException) -> tuple[Finding, str]:
    """The finding, and for a bug its story. The words of an unknown exception are no part of the finding: they may
    quote anything.
    """
    if isinstance(error, MlcbuildError):
        return of_error(error), ""
    if isinstance(error, OSError) and error.errno is not None:
        where = f"{error.filename}: " if isinstance(error.filename, str | Path) else ""
        return problem(" ".join(f"{where}{error.strerror or type(error).__name__}".split())), ""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    finding = Finding(
        verdict=Verdict.PROBLEM,
        measured=f"the check itself failed: {type(error).__name__}{place}",
        advice=("this is a mistake in mlcbuild; MLCBUILD_DEBUG=1 shows where",),
        blame=Blame.MLCBUILD,
    )
    return finding, "".join(traceback.format_exception(error))
