"""Memory: the peak is reported, the request is a limit, and an action waits until its request is free."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.engine.executor import OutcomeKind
from mlcbuild.execution.admission import FreeResources, ResourceRequest
from mlcbuild.execution.local import LocalExecutor
from mlcbuild.execution.machine_resources import MachineResources
from mlcbuild.execution.memory import available_bytes

if TYPE_CHECKING:
    from tests.execution.conftest import World

_MEBI = 1 << 20


@pytest.fixture
def started(world: World) -> Iterator[Callable[..., LocalExecutor]]:
    made: list[LocalExecutor] = []

    def start(**settings: object) -> LocalExecutor:
        executor = LocalExecutor(world.store, jobs=4, scratch=world.scratch, **settings)  # type: ignore[arg-type]
        executor.start(world.outcomes.put)
        made.append(executor)
        return executor

    yield start
    for executor in made:
        executor.close()


def test_an_outcome_tells_peak_and_the_times_of_inputs_and_outputs(world: World) -> None:
    outcome = world.run(world.stage("allocate", mebibytes=100, seconds=0.0))
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert 100 * _MEBI < outcome.peak_bytes < 300 * _MEBI
    assert 0 < outcome.input_seconds < outcome.run_seconds
    assert 0 < outcome.output_seconds < outcome.run_seconds


def test_the_peak_of_a_tool_is_that_of_all_its_processes_together(world: World) -> None:
    script = (
        "x() { head -c 60000000 /dev/zero | tail -c 60000000 | (sleep 0.7; wc -c); }; x & x & x; wait; touch out.txt"
    )
    outcome = world.run(world.tool("/bin/sh", "-c", script))
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert outcome.peak_bytes > 150_000_000


@pytest.mark.parametrize("in_child", [False, True])
def test_holding_more_than_asked_for_ends_an_action(world: World, in_child: bool) -> None:
    requirements = ExecutionRequirements(memory_bytes=200 * _MEBI)
    request = world.stage("allocate", mebibytes=400, seconds=60.0, in_child=in_child, requirements=requirements)
    outcome = world.run(request)
    assert outcome.kind is OutcomeKind.OUT_OF_MEMORY
    assert outcome.peak_bytes > 200 * _MEBI
    assert outcome.message == (
        f"//t:x Stage used {outcome.peak_bytes / (1 << 30):.1f} GiB of memory, more than the 0.2 GiB that it requests, "
        "and was stopped"
    )


def test_holding_less_than_asked_for_is_fine(world: World) -> None:
    requirements = ExecutionRequirements(memory_bytes=600 * _MEBI)
    request = world.stage("allocate", mebibytes=400, seconds=0.3, in_child=False, requirements=requirements)
    assert world.run(request).kind is OutcomeKind.SUCCEEDED


def test_a_kill_by_the_kernel_for_want_of_memory_is_told_as_that(world: World) -> None:
    group = Path("/sys/fs/cgroup/memory") if Path("/sys/fs/cgroup/memory").is_dir() else Path("/sys/fs/cgroup")
    own = group / f"mlcbuild-test-{os.getpid()}"
    try:
        own.mkdir()
        limit = next(own.glob("memory.max"), own / "memory.limit_in_bytes")
        limit.write_text(str(150 * _MEBI))
    except OSError:
        pytest.skip("no control group can be made here")
    try:
        outcome = world.run(world.stage("allocate", mebibytes=400, seconds=60.0, group=str(own)))
    finally:
        own.rmdir()
    assert outcome.kind is OutcomeKind.OUT_OF_MEMORY
    assert "most likely by the OOM killer" in outcome.message


def test_actions_wait_for_memory_that_others_were_let_in_for(
    world: World, started: Callable[..., LocalExecutor]
) -> None:
    executor = started(available_bytes=lambda: 5 << 30)
    for number in range(3):
        requirements = ExecutionRequirements(memory_bytes=2 << 30)
        request = world.tool(
            "/bin/sh", "-c", "sleep 0.4; touch out.txt", identifier=str(number), requirements=requirements
        )
        executor.submit(request)
    waits = {outcome.identifier: outcome.queued_seconds for outcome in (world.next() for _ in range(3))}
    assert waits["1"] < 0.3 < waits["2"]


def test_what_an_action_is_expected_to_use_counts_where_it_asks_for_nothing(
    world: World, started: Callable[..., LocalExecutor]
) -> None:
    executor = started(available_bytes=lambda: 3 << 30)
    for number in range(2):
        request = world.tool("/bin/sh", "-c", "sleep 0.4; touch out.txt", identifier=str(number))
        executor.submit(replace(request, expected_bytes=2 << 30))
    assert max(world.next().queued_seconds for _ in range(2)) > 0.3


def test_one_action_runs_however_little_memory_there_is(world: World, started: Callable[..., LocalExecutor]) -> None:
    executor = started(available_bytes=lambda: 0)
    for number in range(3):
        requirements = ExecutionRequirements(memory_bytes=1 << 30)
        executor.submit(world.tool("/bin/touch", "out.txt", identifier=str(number), requirements=requirements))
    assert {world.next().kind for _ in range(3)} == {OutcomeKind.SUCCEEDED}


def test_memory_that_others_give_back_is_noticed(world: World, started: Callable[..., LocalExecutor]) -> None:
    free = threading.Event()
    executor = started(available_bytes=lambda: (4 << 30) if free.is_set() else 0)
    requirements = ExecutionRequirements(memory_bytes=1 << 30)
    executor.submit(world.tool("/bin/sleep", "1000", identifier="long", requirements=requirements))
    executor.submit(world.tool("/bin/touch", "out.txt", identifier="waits", requirements=requirements))
    time.sleep(0.2)
    assert world.outcomes.empty()
    free.set()
    assert world.next().identifier == "waits"


def test_actions_that_want_the_only_gpu_run_one_after_the_other(
    world: World, started: Callable[..., LocalExecutor]
) -> None:
    executor = started(resources=MachineResources(cpus=4, gpus=1.0))
    for number in range(2):
        requirements = ExecutionRequirements(gpus=1.0)
        request = world.tool(
            "/bin/sh", "-c", "sleep 0.4; touch out.txt", identifier=str(number), requirements=requirements
        )
        executor.submit(request)
    assert max(world.next().queued_seconds for _ in range(2)) > 0.3


def test_ten_tenths_of_a_gpu_are_one() -> None:
    free = FreeResources(cpus=100, gpus=1.0)
    for _ in range(10):
        assert free.fits(ResourceRequest(gpus=0.1))
        free.acquire(ResourceRequest(gpus=0.1))
    assert not free.fits(ResourceRequest(gpus=0.1))


def test_this_machine_has_memory_left() -> None:
    assert 0 < available_bytes() < 1 << 50
