"""Finds the state of each cell by lookups, and what failed in recorded builds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from mlcbuild.cli.inspection.aquery import announces_unknown
from mlcbuild.cli.log.records import iterate
from mlcbuild.cli.matrix.cell import CellState, MatrixCell
from mlcbuild.engine.survey import ActionState, Survey, SurveyedAction
from mlcbuild.rules.analysis import Analysis
from mlcbuild.rules.providers import FilesInfo, TestInfo
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.target import Target

_MOST_RECORDS = 20
_HAVE_RESULTS = (ActionState.UP_TO_DATE, ActionState.CACHED)


def shown_labels(analysis: Analysis) -> tuple[Label, ...]:
    """The requested targets that have files, without those that another requested one needs: a build of that one
    builds them as well. Tests have none, and hide nothing that they run."""
    requested = [target.label for target in analysis.requested if not target.provided(TestInfo)]
    needed: set[Label] = set()
    pending = [found for label in requested for found in analysis.needs[label]]
    while pending:
        label = pending.pop()
        if label not in needed:
            needed.add(label)
            pending += analysis.needs[label]
    return tuple(
        target.label
        for target in analysis.requested
        if target.label not in needed and any(info.files for info in target.providers if isinstance(info, FilesInfo))
    )


def cells_of(
    targets: Mapping[Label, Target], analysis: Analysis, survey: Survey, record_directory: Path
) -> tuple[MatrixCell, ...]:
    """The cells of all shown and skipped targets, in the order of labels in files."""
    needed = {label: _runs_once(survey.actions_of(str(label))) for label in shown_labels(analysis)}
    pending = {each.action.identifier for actions in needed.values() for each in actions if not _has_result(each)}
    failures = _failures(record_directory, pending) if pending else {}
    cells = [_cell(targets[label], actions, failures) for label, actions in needed.items()]
    cells += [
        MatrixCell(target=targets[label], state=CellState.SKIPPED, reason=reason)
        for label, reason in analysis.skipped.items()
    ]
    order = {label: number for number, label in enumerate(targets)}
    return tuple(sorted(cells, key=lambda cell: order[cell.target.label]))


def _has_result(surveyed: SurveyedAction) -> bool:
    return surveyed.state in _HAVE_RESULTS


def _runs_once(actions: Sequence[SurveyedAction]) -> list[SurveyedAction]:
    """Without actions that share the run of another one of the same target."""
    identifiers = {each.action.identifier for each in actions}
    return [each for each in actions if each.shared_with not in identifiers]


def _cell(target: Target, actions: Sequence[SurveyedAction], failures: Mapping[str, dict[str, Any]]) -> MatrixCell:
    runs = [each for each in actions if not _has_result(each)]
    state, reason = CellState.BUILT, ""
    if runs:
        reason = next(filter(None, (_failure(each, failures) for each in runs)), "")
        state = CellState.FAILED if reason else CellState.WOULD_RUN
    elif any(each.state is ActionState.CACHED for each in actions):
        state = CellState.CACHED
    return MatrixCell(
        target=target,
        state=state,
        reason=reason,
        actions=len(actions),
        would_run=len(runs),
        announces_more=any(map(announces_unknown, runs)),
    )


def _failure(surveyed: SurveyedAction, failures: Mapping[str, dict[str, Any]]) -> str:
    """Why an action would fail, or failed with the key that it has now; "" if it did not."""
    action = surveyed.action
    if surveyed.state is ActionState.NO_KEY:
        return _told(surveyed, surveyed.message)
    failure = failures.get(action.identifier)
    if failure is None or surveyed.key is None or failure.get("key") != surveyed.key.hash:
        return ""
    return _told(surveyed, str(failure.get("message", "")))


def _told(surveyed: SurveyedAction, message: str) -> str:
    """The first line of a message, which may begin with the action's name, after that name."""
    action = surveyed.action
    first = message.removeprefix(action.title).lstrip(": ").partition("\n")[0]
    return f"{action.title}: {first}"


def _failures(directory: Path, identifiers: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The records of actions that failed when they ended last."""
    wanted = set(identifiers)
    found: dict[str, dict[str, Any]] = {}
    for record in islice(iterate(directory), _MOST_RECORDS):
        last = {action.get("identifier", ""): action for action in record.actions()}
        for identifier in wanted & last.keys():
            status = last[identifier].get("status")
            if status != "skipped":
                wanted.discard(identifier)
            if status == "failed":
                found[identifier] = last[identifier]
        if not wanted:
            break
    return found
