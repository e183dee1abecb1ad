"""Every check ends as a finding within its deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import NoReturn

import pytest

from mlcbuild.doctor.check import Check, Part
from mlcbuild.doctor.examination import Examined, examine, examine_all
from mlcbuild.doctor.finding import Finding, FindingCause, Verdict, ok, warning
from mlcbuild.errors import (
    CacheError,
    InternalError,
    LocalEnvironmentError,
    Location,
    UsageError,
    WorkspaceError,
    WorkspaceErrors,
)

PART = Part(name="part", checks=lambda: ())


def failing(error: BaseException) -> Examined:
    def examined() -> NoReturn:
        raise error

    return examine(PART, Check(name="one", examine=examined))


def test_a_finding_is_passed_on_with_the_time_that_it_took() -> None:
    def slow() -> Finding:
        time.sleep(0.15)
        return warning("x", "y", bytes=3)

    examined = examine(PART, Check(name="one", examine=slow))
    assert (examined.name, examined.finding) == ("one", warning("x", "y", bytes=3))
    assert 0.15 <= examined.seconds < 5


def test_a_check_that_is_silent_is_left_behind_at_its_deadline() -> None:
    released = threading.Event()
    ticks: list[float] = []

    def stuck() -> Finding:
        released.wait(60)
        return ok("at last")

    check = Check(name="one", examine=stuck, seconds=0.4, if_silent=("look at the mount",))
    began = time.monotonic()
    examined = examine(PART, check, tick=lambda _, seconds: ticks.append(seconds))
    assert time.monotonic() - began < 5
    released.set()
    assert examined.finding.verdict is Verdict.ERROR
    assert examined.finding.measured == "no answer within 0.4 s"
    assert examined.finding.advice == ("look at the mount",)
    assert ticks == sorted(ticks)
    assert len(ticks) >= 2


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (UsageError("what", advice=("do",)), FindingCause.SETTINGS),
        (WorkspaceError("what", advice=("do",)), FindingCause.SETTINGS),
        (LocalEnvironmentError("what", advice=("do",)), FindingCause.MACHINE),
        (CacheError("what", advice=("do",)), FindingCause.MACHINE),
        (InternalError("what", advice=("do",)), FindingCause.MLCBUILD),
    ],
)
def test_an_error_becomes_a_finding_with_its_advice(error: Exception, cause: FindingCause) -> None:
    finding = failing(error).finding
    assert (finding.verdict, finding.measured, finding.advice, finding.cause) == (
        Verdict.ERROR,
        "what",
        ("do",),
        cause,
    )


def test_a_finding_has_all_errors_that_come_together() -> None:
    errors = tuple(WorkspaceError(f"error {line}", location=Location(path="BUILD.toml", line=line)) for line in (3, 7))
    finding = failing(WorkspaceErrors(errors)).finding
    assert finding.measured == "BUILD.toml:3: error 3"
    assert finding.advice == ("BUILD.toml:7: error 7",)


def test_a_bug_is_a_finding_that_quotes_nothing_of_what_was_raised() -> None:
    for error in (RuntimeError("with a secret"), SystemExit("with a secret"), KeyboardInterrupt("with a secret")):
        examined = failing(error)
        assert examined.finding.cause is FindingCause.MLCBUILD
        assert f"the check itself failed: {type(error).__name__} at test_examination.py:" in examined.finding.measured
        assert "secret" not in str(examined.finding)
        assert "with a secret" in examined.failure


def test_an_error_without_words_or_with_many_lines_is_one_finding_too() -> None:
    assert failing(CacheError("")).finding.measured == "CacheError"
    assert failing(CacheError("one\ntwo", advice=("three\nfour",))).finding.advice == ("two", "three", "four")
    assert failing(PermissionError(13, "Permission denied", "/a\nb")).finding.measured == "/a b: Permission denied"


def test_an_error_of_the_system_names_its_file() -> None:
    finding = failing(PermissionError(13, "Permission denied", "/some/file")).finding
    assert (finding.measured, finding.cause) == ("/some/file: Permission denied", FindingCause.MACHINE)


def test_a_part_without_checks_is_one_finding_and_the_next_part_runs() -> None:
    closed = []

    def broken() -> Sequence[Check]:
        raise UsageError("no such role")

    parts = [
        Part(name="first", checks=broken),
        Part(
            name="second",
            checks=lambda: (Check(name="a", examine=lambda: ok("x")), Check(name="b", examine=lambda: ok("y"))),
            close=lambda: closed.append(True),
        ),
    ]
    found = list(examine_all(parts, tick=lambda *_: None))
    assert [(each.part.name, each.name, each.finding.measured) for each in found] == [
        ("first", "settings", "no such role"),
        ("second", "a", "x"),
        ("second", "b", "y"),
    ]
    assert closed == [True]
