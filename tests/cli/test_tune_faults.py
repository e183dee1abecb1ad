"""Whose fault it is that a candidate was not built or measured, as builds tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.cli.build.ending import BuildEnding
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.tune.building import failures_of_the_machine, is_candidates_fault
from mlcbuild.engine.build_events import ActionFinished, ActionStatus
from mlcbuild.engine.executor import ExecutionOutcome, OutcomeKind
from tests.engine.small_workspace import Workspace, shell, target


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(OutcomeKind.FAILED, True), (OutcomeKind.ENVIRONMENT, False), (OutcomeKind.OUT_OF_MEMORY, False)],
)
def test_a_full_disk_or_a_lack_of_memory_is_no_fault_of_what_is_compiled(
    tmp_path: Path, kind: OutcomeKind, expected: bool
) -> None:
    workspace = Workspace(tmp_path)
    workspace.executor.before = lambda request: ExecutionOutcome(
        identifier=request.identifier, kind=kind, message="it failed"
    )
    one, equal = shell("one", "echo > out"), shell("equal", "echo > out")
    result = workspace.build([one, equal], target("//p:t", one.output("out"), equal.output("out")))
    assert not result.success
    told = {failure.identifier for failure in result.failures} - failures_of_the_machine(result)
    code = BuildEnding().exit_code(result, answers=told)
    assert code == (ExitCode.OK if expected else ExitCode.LOCAL_ENVIRONMENT), "as the history has it"
    ended = [event for event in workspace.events if isinstance(event, ActionFinished)]
    assert {event.identifier for event in ended} == {"one", "equal"}
    assert sum(bool(event.shared_with) for event in ended) == 1, "they share a run"
    for event in ended:
        assert event.status is ActionStatus.FAILED
        assert is_candidates_fault(event) is expected
