"""The recorded builds of a workspace, from `.mlcbuild/builds/`. Nothing else depends on these files.

Builds that did something have a file each (`record_file`) and are numbered from the newest, 1. Builds that had nothing
to do, or failed before any action was known, are lines of one file (`no_op_builds`) and have no number: so they take no
build out of reach, and the last build that ran something stays number 1 however often it is asked for again.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mlcbuild.cli.log.no_op_builds import no_op_lines
from mlcbuild.cli.log.record_file import read_lines, read_summary, record_files
from mlcbuild.errors import UsageError

_LONGEST_NUMBER = 4  # digits; a longer number is part of an invocation


@dataclass(frozen=True, kw_only=True)
class TargetRecord:
    """What became of a target. `ran`, `cached` and `seconds` are of its own actions, as in the build report."""

    requested: bool
    outcome: str  # `built`, `needed`, `failed`, `not cached`, `not built`
    ran: int
    cached: int
    seconds: float
    output_files: tuple[Mapping[str, Any], ...]  # as in the build report
    unchanged: int  # of `cached`: those that were up to date, and not because an equal action ran
    axes: Mapping[str, str] = field(default_factory=dict)  # the cell of a matrix that it is

    @property
    def did_something(self) -> bool:
        """Whether an action ran, failed, or took a result that was new here."""
        return self.outcome in ("failed", "not cached", "not built") or self.unchanged < self.ran + self.cached


@dataclass(frozen=True, kw_only=True)
class BuildRecord:
    """One build. `began` is in seconds since 1970; counts are by the status of actions.

    What follows the summary in the file is read when it is asked for. A file that is damaged there gives less.
    """

    path: Path | None  # None for a build without actions to tell of
    invocation: str
    began: float
    arguments: tuple[str, ...]
    first_targets: tuple[str, ...]
    target_count: int
    exit_code: int
    wall_seconds: float  # of the build, without loading and analysis
    jobs: int
    counts: Mapping[str, int]
    digest_function: str  # of all digests and keys; "" where it is not known
    summary: Mapping[str, Any]

    @property
    def is_no_op(self) -> bool:
        """Whether it had nothing to do."""
        return self.path is None and not self.exit_code

    @property
    def error(self) -> str:
        """Why it failed before any action was known; "" for all other builds."""
        return str(self.summary.get("error", ""))

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The labels that were asked for; the first forty of a build without actions, and patterns if it failed."""
        if self.target_count == len(self.first_targets):
            return self.first_targets
        requested = tuple(label for label, target in self.outcomes.items() if target.requested)
        return requested or self.first_targets

    @cached_property
    def outcomes(self) -> Mapping[str, TargetRecord]:
        """What became of each target that was asked for or has actions."""
        found: dict[str, TargetRecord] = {}
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            if self._version == 1:
                return _outcomes_of(self)
            for label, target in self._line(0).items():
                found[label] = TargetRecord(
                    requested=bool(target["requested"]),
                    outcome=str(target["outcome"]),
                    ran=int(target["ran"]),
                    cached=int(target["cached"]),
                    seconds=float(target["seconds"]),
                    output_files=tuple(target["output_files"]),
                    axes=dict(target.get("axes", {})),
                    unchanged=int(target.get("unchanged", 0)),
                )
        return found

    @cached_property
    def critical_path(self) -> tuple[Mapping[str, Any], ...]:
        """The steps, each with `identifier`, `mnemonic`, `seconds` and `title`."""
        return tuple(self._path_line.get("critical_path", ()))

    @cached_property
    def slacks(self) -> Mapping[str, float]:
        """Seconds by action, of those that ran and are not on the critical path."""
        return dict(self._path_line.get("slacks", {}))

    @cached_property
    def notices(self) -> tuple[Mapping[str, Any], ...]:
        """What the user was told, each with `message` and `time`."""
        return tuple(self._path_line.get("notices", ()))

    @cached_property
    def skipped(self) -> tuple[Mapping[str, Any], ...]:
        """The targets that cannot be built for their platform, each with `label`, `reason` and `axes`."""
        return tuple(self._path_line.get("skipped", ()))

    def actions(self) -> Iterator[dict[str, Any]]:
        """The actions in the order in which they ended. A damaged file gives fewer."""
        if self.path is not None:
            yield from itertools.islice(read_lines(self.path), 0 if self._version == 1 else 2, None)

    def ran_for(self, owners: frozenset[str]) -> bool:
        """Whether an action of one of these targets ran, or failed."""
        return any((target.ran or target.seconds) and label in owners for label, target in self.outcomes.items())

    @property
    def _version(self) -> int:
        return int(self.summary.get("version", 0))

    @cached_property
    def _path_line(self) -> Mapping[str, Any]:
        return self.summary if self._version == 1 else self._line(1)

    def _line(self, index: int) -> Mapping[str, Any]:
        lines = read_lines(self.path) if self.path is not None else iter(())
        return next(itertools.islice(lines, index, None), {})


def records(directory: Path) -> list[BuildRecord]:
    """The recorded builds that did something, newest first, without damaged files."""
    return list(iterate(directory))


def iterate(directory: Path) -> Iterator[BuildRecord]:
    """`records`, each read when it is asked for."""
    found = (_record(path) for path in record_files(directory))
    return (record for record in found if record is not None)


def unnumbered(directory: Path) -> list[BuildRecord]:
    """The recorded builds without actions, newest first."""
    return [record for document in no_op_lines(directory) if (record := _unnumbered(document)) is not None]


def numbered(
    builds: Iterable[tuple[int, BuildRecord]], others: Iterable[BuildRecord]
) -> list[tuple[int | None, BuildRecord]]:
    """All builds, newest first; `others` have no number."""
    both: list[tuple[int | None, BuildRecord]] = [*builds, *((None, record) for record in others)]
    return sorted(both, key=lambda pair: -pair[1].began)


def stored_bytes(directory: Path) -> int:
    """The bytes of all that is recorded."""
    size = 0
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            with contextlib.suppress(OSError):
                size += path.lstat().st_size
    return size


def chosen(directory: Path, wanted: str) -> BuildRecord:
    """The build that a user names: 1 for the last that did something, 2 for the one before, or the first digits of an
    invocation.

    Raises UsageError if there is no such build.
    """
    known = records(directory)
    if wanted.isdecimal() and len(wanted) <= _LONGEST_NUMBER:
        number = int(wanted)
        if 1 <= number <= len(known):
            return known[number - 1]
        if known:
            raise UsageError(
                f"there is no build {number}: the oldest recorded build is {len(known)}",
                advice=("`mlcbuild log` lists them",),
            )
        matching = []
    else:
        idle = unnumbered(directory)
        matching = [record for record in (*known, *idle) if record.invocation.startswith(wanted.lower())]
        known += idle
    if not known:
        raise UsageError("no build of this workspace is recorded", advice=("build something first",))
    if len(matching) != 1:
        count = "several recorded builds begin" if matching else "no recorded build begins"
        raise UsageError(f'{count} with "{wanted}"', advice=("`mlcbuild log` lists them",))
    return matching[0]


def _record(path: Path) -> BuildRecord | None:
    summary = read_summary(path)
    return None if summary is None else record_of(summary, path)


def _unnumbered(document: Mapping[str, Any]) -> BuildRecord | None:
    summary = {"exit_code": 0, **document, "jobs": 0, "counts": {"up_to_date": document.get("actions")}}
    return record_of(summary, None)


def record_of(summary: Mapping[str, Any], path: Path | None) -> BuildRecord | None:
    """The record with this summary; None if fields are missing or wrong."""
    try:
        targets = tuple(map(str, summary["targets"]))
        return BuildRecord(
            path=path,
            invocation=str(summary["invocation"]),
            began=float(summary["began"]),
            arguments=tuple(map(str, summary["arguments"])),
            first_targets=targets,
            target_count=int(summary.get("target_count", len(targets))),
            exit_code=int(summary["exit_code"]),
            wall_seconds=float(summary["wall_seconds"]),
            jobs=int(summary["jobs"]),
            counts={str(status): int(count) for status, count in summary["counts"].items()},
            digest_function=str(summary.get("digest_function", "")),
            summary=summary,
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _outcomes_of(record: BuildRecord) -> dict[str, TargetRecord]:
    """The targets of a record of version 1, from its actions. Raises KeyError, TypeError or ValueError."""
    last = {action["identifier"]: action for action in record.actions()}
    owned: dict[str, list[dict[str, Any]]] = {label: [] for label in record.first_targets}
    for action in last.values():
        owned.setdefault(action["owner"], []).append(action)
    found = {}
    for label, actions in owned.items():
        statuses = [action["status"] for action in actions]
        requested = label in record.first_targets
        outcome = "built" if requested and record.exit_code == 0 else "not built" if requested else "needed"
        found[label] = TargetRecord(
            requested=requested,
            outcome="failed" if "failed" in statuses else outcome,
            ran=sum(status.startswith("executed") for status in statuses),
            cached=sum(status in ("up_to_date", "disk_hit", "remote_hit") for status in statuses),
            seconds=sum(float(each["time"]) - float(each.get("start", 0.0)) for each in actions if "executor" in each),
            output_files=(),
            unchanged=0,
        )
    return found
