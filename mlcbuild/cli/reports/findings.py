"""What a CI system shows at a place of a file: errors, failed actions, and what has no cached result."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mlcbuild.cli.output import text
from mlcbuild.cli.reports.finished_build import FailedAction, FinishedBuild, Outcome, TargetResult
from mlcbuild.errors import Location

_LOG_LINES = 20
_LOG_CHARACTERS = 4_000
# The folder of the checkout, as GitHub and GitLab tell it to each job.
_CHECKOUT = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")


class FindingKind(enum.Enum):
    """The values name the check in reports, so they stay."""

    ERROR = "error"
    FAILED_ACTION = "failed-action"
    NOT_CACHED = "not-cached"
    NOT_BUILT = "not-built"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`location` is relative to the checkout, None where there is none."""

    kind: FindingKind
    title: str
    message: str
    location: Location | None = None


def findings(build: FinishedBuild, *, root: Path | None, environment: Mapping[str, str]) -> tuple[Finding, ...]:
    """Errors of the command first, then failures in the order of the targets. `root` is that of the workspace.

    An action that targets share is told once, at the target that is named with it.
    """
    found = [
        Finding(kind=FindingKind.ERROR, title=error.head, message=error.whole, location=error.location)
        for error in build.errors
    ]
    once = {failed.event.identifier for failed in build.failures}
    for target in build.targets:
        if target.outcome is Outcome.NOT_CACHED:
            found.append(_not_cached(target))
        elif target.outcome is Outcome.FAILED and not target.failures:
            found.append(
                Finding(
                    kind=FindingKind.NOT_BUILT,
                    title=f"{target.label} was not built",
                    message=target.reason,
                    location=target.location,
                )
            )
        else:
            found += [_failed(failed, target) for failed in target.failures if failed.event.identifier in once]
    return tuple(replace(each, location=in_checkout(each.location, root, environment)) for each in found)


def in_checkout(location: Location | None, root: Path | None, environment: Mapping[str, str]) -> Location | None:
    """A place with its path from the root of the checkout, where the workspace may be in a folder of it."""
    checkout = next((environment[name] for name in _CHECKOUT if environment.get(name)), "")
    if location is None or not checkout:
        return location
    whole = os.path.realpath((root or Path.cwd()) / location.path)
    relative = os.path.relpath(whole, os.path.realpath(checkout))
    return location if relative.startswith("..") else replace(location, path=relative)


def _failed(failed: FailedAction, target: TargetResult) -> Finding:
    log = failed.log_tail(lines=_LOG_LINES, characters=_LOG_CHARACTERS)
    return Finding(
        kind=FindingKind.FAILED_ACTION,
        title=f"{failed.title} failed",
        message=f"{failed.message}\n{log}" if log else failed.message,
        location=target.location,
    )


def _not_cached(target: TargetResult) -> Finding:
    first = target.failures[0]
    count = len(target.failures)
    return Finding(
        kind=FindingKind.NOT_CACHED,
        title=f"{target.label} is not cached",
        message=f"{text.plural(count, 'action')} without a cached result; the first is {first.title} ({first.message})",
        location=target.location,
    )
