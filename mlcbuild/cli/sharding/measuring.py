"""Timings from what this machine has measured: the recorded builds, and the state of the last build."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from mlcbuild.cli.log.records import iterate
from mlcbuild.engine.shards import Work
from mlcbuild.engine.survey import ActionState, Survey, SurveyedAction
from mlcbuild.engine.timings import Timings, action_name
from mlcbuild.rules.expected_seconds import expected_seconds

_MOST_RECORDS = 100
_HAVE_RESULTS = (ActionState.UP_TO_DATE, ActionState.CACHED)


def measured_timings(labels: Iterable[str], survey: Survey, record_directory: Path) -> tuple[Timings, list[str]]:
    """The timings of targets whose every action has a result, and the labels of the others.

    An action that never ran here, because its result came from a remote cache, has the seconds of its kind here, or
    those that are expected of it.
    """
    ran = _seconds_by_key(record_directory)
    needs: dict[str, frozenset[str]] = {}
    seconds: dict[str, float] = {}
    unknown = []
    for label in labels:
        actions = survey.actions_of(label)
        if any(each.state not in _HAVE_RESULTS and not each.never_kept for each in actions):
            unknown.append(label)
            continue
        names = {}
        for each in actions:
            if each.key is not None:
                names[action_name(each.action.mnemonic, each.key.hash)] = each
        needs[label] = frozenset(names)
        for name, each in names.items():
            seconds[name] = round(_seconds(each, ran, survey), 2)
    return Timings(work=Work(needs=needs, seconds=seconds)), unknown


def _seconds(surveyed: SurveyedAction, ran: dict[str, float], survey: Survey) -> float:
    action = surveyed.action
    if surveyed.key is not None and surveyed.key.hash in ran:
        return ran[surveyed.key.hash]
    remembered = survey.last_build.seconds_of(action.identifier, action.mnemonic)
    return expected_seconds(action) if remembered is None else remembered


def _seconds_by_key(directory: Path) -> dict[str, float]:
    """The last run of each key in the recorded builds."""
    found: dict[str, float] = {}
    for record in islice(iterate(directory), _MOST_RECORDS):
        for action in record.actions():
            if action.get("executor") and action.get("key"):
                found.setdefault(action["key"], action.get("time", 0.0) - action.get("start", 0.0))
    return found
