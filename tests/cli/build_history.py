"""A history of builds that were never run, as the command line would have written it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlcbuild.cli.arguments.options import RECORD_DIRECTORY
from mlcbuild.cli.log.no_op_builds import append_no_op
from mlcbuild.cli.log.recording import write_record
from mlcbuild.cli.log.records import BuildRecord
from mlcbuild.cli.settings.history import HistoryLimits
from tests.cli.build_events import BEGAN, STORY, invocation_of, plain_build

LIMITS = HistoryLimits()


def history_of(workspace: Path) -> Path:
    return workspace / ".mlcbuild" / RECORD_DIRECTORY


def write(directory: Path, number: int, *, limits: HistoryLimits = LIMITS, code: int = 0, **more: Any) -> None:
    write_record(
        directory,
        plain_build(number, **more),
        began=BEGAN + number,
        arguments=["build", "//m:a"],
        exit_code=code,
        limits=limits,
    )


def idle(directory: Path, number: int, *, targets: tuple[str, ...] = ("//m:a",)) -> None:
    append_no_op(
        directory,
        invocation=invocation_of(number),
        began=BEGAN + number,
        arguments=["build"],
        targets=targets,
        actions=3,
        wall_seconds=0.1,
    )


def numbers(builds: list[BuildRecord]) -> list[int]:
    return [int(build.invocation[:8], 16) for build in builds]


def numbers_of_files(builds: list[BuildRecord]) -> list[int]:
    """By the names of the files: damage may change any digit inside of one."""
    return [int(build.path.stem.rpartition("-")[2], 16) for build in builds if build.path is not None]


def mixed(directory: Path) -> None:
    """Four builds, of which one failed, and builds with nothing to do before, between and after them."""
    write(directory, 100, actions=12, cached=3)
    for number in (160, 170, 180):
        idle(directory, number)
    write(directory, 200, actions=2, cached=13, label="//m:b")
    write(directory, 300, actions=1, cached=14)
    write_record(directory, STORY, began=BEGAN + 400, arguments=["build"], exit_code=1, limits=LIMITS)
    idle(directory, 500, targets=("//m:a", "//m:b"))
