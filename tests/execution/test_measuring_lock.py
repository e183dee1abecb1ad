"""Actions that run alone: nothing else of mlcbuild's measures on the machine meanwhile."""

from __future__ import annotations

import queue
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mlcbuild.engine.action import MORE_CPUS_THAN_ANY, ExecutionRequirements
from mlcbuild.engine.executor import OutcomeKind
from mlcbuild.execution.local import LocalExecutor
from mlcbuild.execution.measuring_lock import measuring_here
from tests.execution.conftest import STAGES, World

ALONE = ExecutionRequirements(cpus=MORE_CPUS_THAN_ANY)
HOLDS = """
import sys
from mlcbuild.execution.measuring_lock import measuring_here
with measuring_here(waits=print):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def said(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What an executor says that is of another machine than this one, as its folder of locks is another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(world.directory / "home"))
    said: list[str] = []
    world.executor = LocalExecutor(world.store, jobs=2, scratch=world.scratch, module_paths=(STAGES,), say=said.append)
    world.executor.start(world.outcomes.put)
    yield said
    world.executor.close()


@contextmanager
def another_measures() -> Iterator[subprocess.Popen[str]]:
    """Another process holds the lock until its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_an_action_that_runs_alone_waits_for_another_process_that_measures(world: World, said: list[str]) -> None:
    with another_measures() as process:
        world.executor.submit(world.tool("/bin/touch", "out.txt", identifier="//t:alone", requirements=ALONE))
        with pytest.raises(queue.Empty):
            world.outcomes.get(timeout=1.0)
        assert said == ["waiting for another process that measures on this machine"]
        process.communicate()
    outcome = world.next()
    assert (outcome.identifier, outcome.kind) == ("//t:alone", OutcomeKind.SUCCEEDED)
    assert outcome.queued_seconds >= 1.0
    assert outcome.input_seconds < 1.0


def test_it_waits_for_nobody_in_its_own_process_that_holds_the_lock(world: World, said: list[str]) -> None:
    """As `tune` does for all its rounds."""
    with measuring_here(waits=pytest.fail):
        outcome = world.run(world.tool("/bin/touch", "out.txt", requirements=ALONE))
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert said == []


def test_one_that_waits_can_be_cancelled_and_others_do_not_wait(world: World, said: list[str]) -> None:
    with another_measures():
        assert world.run(world.tool("/bin/touch", "out.txt")).kind is OutcomeKind.SUCCEEDED
        world.executor.submit(world.tool("/bin/sleep", "100", identifier="//t:alone", requirements=ALONE))
        while not said:
            time.sleep(0.01)
        world.executor.cancel("//t:alone")
        assert world.next().kind is OutcomeKind.CANCELLED


def test_the_lock_is_free_after_the_action(world: World, said: list[str]) -> None:
    world.run(world.tool("/bin/touch", "out.txt", requirements=ALONE))
    with another_measures():
        assert said == []
