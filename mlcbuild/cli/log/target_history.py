"""`mlcbuild log --target`: what the recorded builds did of some targets, to see how their seconds and hits develop."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.log.build_list import DEFAULT_LIMIT, note_older
from mlcbuild.cli.log.listings import SHOWN_DIGITS, build_document, moment, record_directory, table
from mlcbuild.cli.log.records import BuildRecord, TargetRecord, iterate
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.errors import UsageError
from mlcbuild.workspace.label import LabelError, read_label
from mlcbuild.workspace.pattern import Pattern, parse_pattern
from mlcbuild.workspace.settings import find_root, package_of

_URGENCY = ("failed", "not cached", "not built", "built", "needed")


@dataclass(frozen=True, kw_only=True)
class TargetsInBuild:
    """The targets of a build that were asked for in the listing; at least one."""

    number: int
    build: BuildRecord
    targets: tuple[tuple[str, TargetRecord], ...]  # by label

    @property
    def outcome(self) -> str:
        """The most urgent one."""
        known = {target.outcome for _, target in self.targets}
        return next((outcome for outcome in _URGENCY if outcome in known), "built")

    @property
    def ran(self) -> int:
        return sum(target.ran for _, target in self.targets)

    @property
    def cached(self) -> int:
        return sum(target.cached for _, target in self.targets)

    @property
    def seconds(self) -> float:
        return sum((target.seconds for _, target in self.targets), 0.0)


def print_target_history(
    target: str, output: OutputFormat, options: GlobalOptions, *, limit: int | None, failed: bool
) -> None:
    """Print the builds that asked for or needed a target of the pattern, newest first. Builds that had nothing to do
    are left out. `limit` is that of `print_builds`. Raises WorkspaceError for a wrong pattern, and UsageError.
    """
    root = find_root(options.directory)
    pattern = parse_pattern(target, package=package_of(root, options.directory))
    if pattern.negative:
        raise UsageError(f"--target {target}: a pattern with a minus names no target")
    found = _found(pattern, iterate(record_directory(options)))
    if failed:
        found = (each for each in found if each.outcome in _URGENCY[:3])
    most = limit if limit is not None else 0 if output is OutputFormat.JSON else DEFAULT_LIMIT
    builds = list(itertools.islice(found, most or None))
    if output is OutputFormat.JSON:
        print_json([_document(each) for each in builds])
        return
    if not builds:
        print(f"no recorded build {'failed for' if failed else 'did anything for'} {target}")
        return
    options.show(history_lines(builds))
    if older := sum(1 for _ in found):
        note_older(older, options)


def history_lines(builds: Sequence[TargetsInBuild]) -> list[str]:
    """A table with a row for each build, and what all of them say together."""
    rows = [
        (
            f"{each.number}",
            f"{each.seconds:.1f}",
            f"{each.ran:,}",
            f"{each.cached:,}",
            moment(each.build.began),
            each.build.invocation[:SHOWN_DIGITS],
            each.outcome,
        )
        for each in builds
    ]
    titles = ("build", "seconds", "ran", "cached", "began", "invocation", "outcome")
    return [*table(titles, rows, right=range(4)), "", *_together(builds)]


def _together(builds: Sequence[TargetsInBuild]) -> Iterator[str]:
    seconds = [each.seconds for each in builds if each.ran]
    hits, runs = sum(each.cached for each in builds), sum(each.ran for each in builds)
    share = f"; {hits / (hits + runs):.0%} of the actions were cached" if hits + runs else ""
    yield f"{text.plural(len(builds), 'build')}; actions ran in {len(seconds):,}{share}"
    if len(seconds) > 1:
        middle, least, most = map(text.seconds, (statistics.median(seconds), min(seconds), max(seconds)))
        yield f"where they ran: median {middle}, from {least} to {most}"


def _found(pattern: Pattern, builds: Iterator[BuildRecord]) -> Iterator[TargetsInBuild]:
    for number, build in enumerate(builds, start=1):
        targets = tuple(pair for pair in build.outcomes.items() if _matches(pattern, pair[0]))
        if targets:
            yield TargetsInBuild(number=number, build=build, targets=targets)


@functools.cache
def _matches(pattern: Pattern, name: str) -> bool:
    try:
        return pattern.matches(read_label(name, ""))
    except LabelError:
        return False


def _document(each: TargetsInBuild) -> dict[str, object]:
    return {
        "build": each.number,
        **build_document(each.build),
        "outcome": each.outcome,
        "ran": each.ran,
        "cached": each.cached,
        "seconds": round(each.seconds, 6),
        "of_targets": {
            label: {
                "requested": target.requested,
                "outcome": target.outcome,
                "ran": target.ran,
                "cached": target.cached,
                "seconds": target.seconds,
                "output_files": list(target.output_files),
            }
            for label, target in each.targets
        },
    }
