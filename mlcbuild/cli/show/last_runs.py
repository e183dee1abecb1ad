"""What the recorded builds say of actions: when each ran last, and where its result came from."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcbuild.cli.log.records import BuildRecord, iterate

_UP_TO_DATE = "up_to_date"
_MOST_BUILDS = 100  # that are read: some milliseconds for each thousand actions


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """An action as a build recorded it. `action` has the fields of the event log."""

    build: BuildRecord
    action: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class LastRuns:
    """By the identifiers of actions. `runs` are the last builds in which they ran, `ends` those in which they last ran,
    failed or got a result from a cache. Actions without such a build are missing.
    """

    runs: Mapping[str, Recorded]
    ends: Mapping[str, Recorded]

    @classmethod
    def read(cls, directory: Path, identifiers: Collection[str]) -> LastRuns:
        """Read the newest records below `directory`, as far as actions are still missing."""
        runs: dict[str, Recorded] = {}
        ends: dict[str, Recorded] = {}
        wanted = set(identifiers)
        for build in itertools.islice(_with_news(directory, wanted), _MOST_BUILDS):
            actions = {action["identifier"]: action for action in build.actions()}
            for identifier in wanted & actions.keys():
                action = actions[identifier]
                if action["status"] != _UP_TO_DATE:
                    ends.setdefault(identifier, Recorded(build=build, action=action))
                # Of equal actions one runs, for all of them.
                ran = actions.get(action.get("shared_with", ""), action)
                if ran.get("executor"):
                    runs[identifier] = Recorded(build=build, action=ran)
            wanted -= runs.keys()
            if not wanted:
                break
        return cls(runs=runs, ends=ends)


def _with_news(directory: Path, wanted: Collection[str]) -> Iterator[BuildRecord]:
    """The builds that did something for a target of the actions that are `wanted` by then."""
    for build in iterate(directory):
        owners = tuple(f"{label} " for label, target in build.outcomes.items() if target.did_something)
        if any(identifier.startswith(owners) for identifier in wanted):
            yield build
