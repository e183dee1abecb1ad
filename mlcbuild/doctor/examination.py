"""Runs checks, each within its deadline, and turns every exception into a finding."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.doctor.check import Check, Part
from mlcbuild.doctor.finding import Finding, FindingCause, Verdict, failed
from mlcbuild.errors import InternalError, MlcbuildError, UsageError, WorkspaceError, WorkspaceErrors

_TICK_SECONDS = 0.1
_PREPARING = "settings"


class UnreadableWorkspace(WorkspaceErrors):
    """The workspace cannot be opened because of errors in its own files."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    """A finding with its part and name. `seconds` is the time of the check, `failure` its traceback if it crashed."""

    part: Part
    name: str
    finding: Finding
    seconds: float
    failure: str = ""


def examine_all(parts: Iterable[Part], *, tick: Callable[[str, float], object]) -> Iterator[Examined]:
    """Run the checks in order. `tick` gets the name of the current check and its seconds, ten times a second."""
    for part in parts:
        try:
            checks = part.checks()
        except Exception as error:
            finding, trace = _finding_of(error)
            yield Examined(part=part, name=_PREPARING, finding=finding, seconds=0.0, failure=trace)
            continue
        try:
            for check in checks:
                yield examine(part, check, tick=tick)
        finally:
            part.close()


def examine(part: Part, check: Check, *, tick: Callable[[str, float], object] = lambda *_: None) -> Examined:
    """The finding of one check. A check that does not answer is abandoned in its thread, which is a daemon."""
    answers: queue.SimpleQueue[tuple[Finding, str]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((check.examine(), ""))
        except BaseException as error:
            answers.put(_finding_of(error))

    began = time.monotonic()
    threading.Thread(target=run, name=f"doctor {check.name}", daemon=True).start()
    while True:
        seconds = time.monotonic() - began
        try:
            finding, trace = answers.get(timeout=min(_TICK_SECONDS, max(check.seconds - seconds, 0.001)))
        except queue.Empty:
            seconds = time.monotonic() - began
            if seconds < check.seconds:
                tick(f"{part.name}: {check.name}", seconds)
                continue
            finding, trace = failed(f"no answer within {check.seconds:g} s", *check.if_silent), ""
        return Examined(part=part, name=check.name, finding=finding, seconds=time.monotonic() - began, failure=trace)


def of_error(error: MlcbuildError, *, cause: FindingCause | None = None) -> Finding:
    """The finding for an error: its message and its advice."""
    errors = [error] if not isinstance(error, WorkspaceErrors) else list(error.errors)
    first, *rest = (f"{each.location}: {each.message}" if each.location else each.message for each in errors)
    line, *more = first.splitlines() or [type(error).__name__]
    advice = [*more, *(hint for each in errors[:1] for hint in each.advice), *rest]
    return Finding(
        verdict=Verdict.ERROR,
        measured=line,
        advice=tuple(row for hint in advice for row in hint.splitlines()),
        cause=cause or _blame(error),
    )


def _blame(error: MlcbuildError) -> FindingCause:
    if isinstance(error, UnreadableWorkspace):
        return FindingCause.TARGETS
    if isinstance(error, UsageError | WorkspaceError):
        return FindingCause.SETTINGS
    return FindingCause.MLCBUILD if isinstance(error, InternalError) else FindingCause.MACHINE


def _finding_of(error: BaseException) -> tuple[Finding, str]:
    """The finding for an exception, and for a bug its traceback.

    The message of an unknown exception is not part of the finding, because it may quote a credential.
    """
    if isinstance(error, MlcbuildError):
        return of_error(error), ""
    if isinstance(error, OSError) and error.errno is not None:
        where = f"{error.filename}: " if isinstance(error.filename, str | Path) else ""
        return failed(" ".join(f"{where}{error.strerror or type(error).__name__}".split())), ""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    finding = Finding(
        verdict=Verdict.ERROR,
        measured=f"the check itself failed: {type(error).__name__}{place}",
        advice=("this is a bug in mlcbuild; MLCBUILD_DEBUG=1 shows where",),
        cause=FindingCause.MLCBUILD,
    )
    return finding, "".join(traceback.format_exception(error))
