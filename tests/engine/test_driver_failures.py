"""Whole builds that fail, lose an executor, or are interrupted."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from mlcbuild.engine.action import (
    ActionDescription,
    DiscoveredArtifacts,
    Discovery,
)
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionStatus,
    BuildFinished,
    Notice,
)
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, OutcomeKind
from mlcbuild.errors import BuildError, InterruptedBuildError, LocalEnvironmentError
from tests.engine.small_workspace import Workspace, chain, shell, target


def test_a_failed_action_is_told_with_its_log_and_never_kept(workspace: Workspace) -> None:
    bad = shell("bad", "echo it went wrong; exit 3")
    after = shell("after", "cat in > out", [("in", bad.output("out"))])
    for _ in range(2):
        result = workspace.build([bad, after], target("//p:t", after.output("out")))
        assert not result.success
        statuses = workspace.statuses()
        assert statuses == {"bad": ActionStatus.FAILED, "after": ActionStatus.SKIPPED}
        failed = next(e for e in workspace.events if isinstance(e, ActionFinished) and e.identifier == "bad")
        assert failed.log == b"it went wrong\n"
        assert failed.exit_code == 3
        assert result.failures[0].identifier == "bad"
        assert "bad" in result.targets[0].error
        assert isinstance(result.error(), BuildError)


def test_an_output_that_was_not_made_fails_the_action(workspace: Workspace) -> None:
    result = workspace.build([lazy := shell("lazy", "true")], target("//p:t", lazy.output("out")))
    assert not result.success
    assert "'out'" in result.failures[0].message


def test_keep_going_builds_what_does_not_depend_on_the_failure(workspace: Workspace) -> None:
    workspace.keep_going = True
    workspace.driver = workspace.new_driver()
    bad = shell("bad", "exit 1")
    good = shell("good", "echo fine > out")
    result = workspace.build([bad, good], target("//p:bad", bad.output("out")), target("//p:good", good.output("out")))
    assert [item.success for item in result.targets] == [False, True]
    assert workspace.text("out/p/good/out0") == "fine\n"


def test_a_manifest_that_cannot_be_read_fails_its_action(workspace: Workspace) -> None:
    def refuse(*, discovering: str, manifest: bytes) -> Discovery:
        raise ValueError("version 9")

    split = shell("split", "echo > manifest", (), ("manifest",), discoverer=refuse)
    join = shell("join", "true", [("d/", DiscoveredArtifacts(action="split", group="g"))])
    result = workspace.build([split, join], target("//p:t", join.output("out")))
    assert result.failures[0].identifier == "split"
    assert "version 9" in result.failures[0].message


def test_a_source_that_changes_while_an_action_runs_fails_it(workspace: Workspace) -> None:
    workspace.write("a.txt", "hello")
    actions = chain()
    workspace.executor.after = lambda _: workspace.write("a.txt", "changed")
    result = workspace.build(actions, target("//p:t", actions[0].output("out")))
    assert not result.success
    assert "'a.txt' changed during the build" in result.failures[0].message
    assert workspace.build(actions, target("//p:t", actions[0].output("out"))).success
    assert workspace.text("out/p/t/out0") == "CC"


def test_a_missing_source_is_the_failure_of_who_needs_it(workspace: Workspace) -> None:
    actions = chain()
    result = workspace.build(actions, target("//p:t", actions[0].output("out")))
    assert not result.success
    assert result.failures[0].identifier == "upper"
    assert "a.txt" in result.failures[0].message


def test_an_action_whose_executor_was_lost_runs_again(workspace: Workspace) -> None:
    lost: list[str] = []

    def lose_once(request: ExecutionRequest) -> ExecutionOutcome | None:
        if lost:
            return None
        lost.append(request.identifier)
        return ExecutionOutcome(
            identifier=request.identifier, kind=OutcomeKind.LOST, message="the worker that ran only died"
        )

    workspace.executor.before = lose_once
    only = shell("only", "echo 1 > out").described(ActionDescription(text="add n×8"))
    result = workspace.build([only], target("//p:t", only.output("out")))
    assert result.success
    assert workspace.last_executor.runs == {"only": 2}
    assert [event.message for event in workspace.events if isinstance(event, Notice)] == [
        f"{only.title} runs again: the worker that ran {only.title} died"
    ]


def test_trouble_of_the_machine_is_told_as_such(workspace: Workspace) -> None:
    workspace.executor.before = lambda request: ExecutionOutcome(
        identifier=request.identifier, kind=OutcomeKind.ENVIRONMENT, message="no space left"
    )
    result = workspace.build([only := shell("only", "true")], target("//p:t", only.output("out")))
    assert isinstance(result.error(), LocalEnvironmentError)


def test_an_interrupt_cancels_what_runs_and_keeps_what_has_finished(workspace: Workspace) -> None:
    quick = shell("quick", "echo quick > out")
    slow = shell("slow", "cat in; sleep 30; echo slow > out", [("in", quick.output("out"))])
    driver = workspace.driver
    workspace.executor.before = lambda request: (
        threading.Timer(0.2, driver.interrupt).start() if request.identifier == "slow" else None
    )
    began = time.monotonic()
    result = workspace.build([quick, slow], target("//p:t", slow.output("out")))
    assert time.monotonic() - began < 10
    assert result.interrupted
    assert isinstance(result.error(), InterruptedBuildError)
    assert workspace.statuses() == {"quick": ActionStatus.EXECUTED_LOCAL, "slow": ActionStatus.SKIPPED}
    assert not (workspace.root / "workspace/out/p/t").exists()
    finished = workspace.events[-1]
    assert isinstance(finished, BuildFinished)
    assert finished.interrupted
    temporaries = list((workspace.root / "store").glob("v1/*/tmp/*"))
    assert temporaries == []
    workspace.build([quick], target("//p:q", quick.output("out")))
    assert workspace.statuses() == {"quick": ActionStatus.UP_TO_DATE}


def test_a_signal_interrupts_from_inside_the_waiting_loop(workspace: Workspace) -> None:
    slow = shell("slow", "sleep 30")
    driver = workspace.driver
    before = signal.signal(signal.SIGINT, lambda *_: driver.interrupt())
    try:
        workspace.executor.before = lambda _: threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        result = workspace.build([slow], target("//p:t", slow.output("out")))
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.interrupted


def test_a_second_interrupt_does_not_wait_for_an_executor_that_does_not_stop(workspace: Workspace) -> None:
    stubborn = shell("stubborn", "sleep 30")
    driver, executor = workspace.driver, workspace.executor
    real_cancel, closed = executor.cancel, list[bool]()
    executor.cancel = lambda identifier: real_cancel(identifier) if closed else None  # type: ignore[method-assign]
    real_close = executor.close

    def close() -> None:
        closed.append(True)
        real_close()

    executor.close = close  # type: ignore[method-assign]

    def interrupt_twice(request: ExecutionRequest) -> None:
        threading.Timer(0.2, driver.interrupt).start()
        threading.Timer(0.4, driver.interrupt).start()

    executor.before = interrupt_twice
    began = time.monotonic()
    result = workspace.build([stubborn], target("//p:t", stubborn.output("out")))
    assert result.interrupted
    assert time.monotonic() - began < 10


def test_a_result_that_cannot_be_kept_fails_no_build(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcbuild.cache.digest import Digest
    from mlcbuild.cache.reapi import ActionResult
    from mlcbuild.errors import CacheError

    def refuse(key: Digest, result: ActionResult) -> None:
        raise CacheError("writing to the store failed")

    monkeypatch.setattr(workspace.store, "put", refuse)
    only = shell("only", "echo 1 > out")
    assert workspace.build([only], target("//p:t", only.output("out"))).success
    assert any(isinstance(event, Notice) and "only" in event.message for event in workspace.events)
