"""On which executor an action runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from mlcbuild.cli.build.executors import BoundExecutor, OnlyExecutor
from mlcbuild.engine.action import Action, CachePolicy, ExecutionRequirements, ToolCall
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, Executor
from mlcbuild.engine.placement import NoExecutor, is_bound_to_this_machine, place
from mlcbuild.execution.machine_resources import MachineResources, unmet_requirement


@dataclass
class Place:
    """An executor that is never asked to run anything."""

    name: str
    slots: int
    trip_seconds: float
    resources: MachineResources

    def unmet_requirement(self, action: Action) -> str:
        return unmet_requirement(self.resources, action.requirements)

    def start(self, report: Callable[[ExecutionOutcome], None]) -> None:
        """Asked before the first question."""

    def submit(self, request: ExecutionRequest) -> None:
        raise AssertionError

    def cancel(self, identifier: str) -> None:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError


CLUSTER = Place("ray", 8, 0.1, MachineResources(cpus=8, gpus=1, labels=(("arch", "sm_90"),)))
LOCAL = Place("local", 2, 0.0, MachineResources(cpus=2, memory_bytes=8 << 30))


def action(*, cache: CachePolicy = CachePolicy.ALL, requirements: ExecutionRequirements | None = None) -> Action:
    return Action(
        identifier="a",
        mnemonic="A",
        owner="//a",
        inputs=(),
        outputs=("out",),
        command=ToolCall(arguments=("true",)),
        cache=cache,
        requirements=requirements or ExecutionRequirements(),
    )


def placed(wanted: Action, *, run_seconds: float, used: dict[str, int] | None = None) -> str:
    return place(wanted, [CLUSTER, LOCAL], used or {}, run_seconds=run_seconds).name


def test_what_is_worth_the_trip_goes_to_the_cluster_and_the_rest_stays() -> None:
    assert placed(action(), run_seconds=5) == "ray"
    assert placed(action(), run_seconds=0.05) == "local"


def test_what_is_worth_the_trip_runs_here_while_the_cluster_is_full() -> None:
    assert placed(action(), run_seconds=5, used={"ray": 8}) == "local"
    assert placed(action(), run_seconds=5, used={"ray": 8, "local": 4}) == "ray"


def test_what_is_true_of_this_machine_alone_runs_here() -> None:
    assert placed(action(cache=CachePolicy.LOCAL), run_seconds=500) == "local"
    assert placed(action(requirements=ExecutionRequirements(network=True)), run_seconds=500) == "local"


def test_beside_a_cluster_this_machine_takes_what_is_bound_to_it_and_nothing_else() -> None:
    def nothing() -> Executor:
        raise AssertionError("no action is to run here")

    for cache in CachePolicy:
        wanted = action(cache=cache)
        made: Callable[[], Executor] = (lambda: LOCAL) if is_bound_to_this_machine(wanted) else nothing
        here = BoundExecutor(name="local", slots=2, make=made)
        here.start(lambda _outcome: None)
        candidates: list[Executor] = [CLUSTER, here]
        chosen = place(wanted, candidates, {}, run_seconds=0.001)
        assert chosen.name == ("local" if cache in (CachePolicy.LOCAL, CachePolicy.REMADE) else "ray")


def test_without_a_cluster_the_reason_names_one() -> None:
    here = OnlyExecutor(name="local", slots=2, make=lambda: LOCAL)
    here.start(lambda _outcome: None)
    elsewhere = "a node of a Ray cluster may have that: --executor=auto --ray-address=HOST:PORT"
    lacking = "needs 1 GPUs (it has 0)"
    for cache in CachePolicy:
        wanted = action(cache=cache, requirements=ExecutionRequirements(gpus=1))
        bound = is_bound_to_this_machine(wanted)
        assert here.unmet_requirement(wanted).splitlines() == ([lacking] if bound else [lacking, f"  {elsewhere}"])
    assert here.unmet_requirement(action()) == ""


def test_requirements_choose_however_small_the_work() -> None:
    wants_gpu = ExecutionRequirements(gpus=1, labels=(("arch", "sm_90"),))
    assert placed(action(requirements=wants_gpu), run_seconds=0.001) == "ray"


def test_what_can_run_nowhere_is_told_with_each_reason() -> None:
    wanted = action(
        requirements=ExecutionRequirements(cpus=9, memory_bytes=9 << 30, gpus=2, labels=(("arch", "sm_80"),))
    )
    with pytest.raises(NoExecutor) as told:
        placed(wanted, run_seconds=1)
    assert str(told.value).splitlines() == [
        "no executor can run a",
        "  ray: needs 9 cpus (it has 8), 2 GPUs (it has 1), the label arch=sm_80 (it has arch=sm_90)",
        "  local: needs 9 cpus (it has 2), 9.0 GiB of memory (it has 8.0 GiB), 2 GPUs (it has 0), "
        "the label arch=sm_80 (it has none)",
    ]
