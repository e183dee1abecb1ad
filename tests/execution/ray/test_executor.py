"""How many actions a cluster gets, and what becomes of an action that a node could not run, without a cluster."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.engine.action import Action, ExecutionRequirements, ToolCall
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, OutcomeKind
from mlcbuild.execution.machine_resources import MachineResources
from mlcbuild.execution.ray import cluster as module
from mlcbuild.execution.ray.executor import RayExecutor
from mlcbuild.execution.ray.frames import pack
from mlcbuild.execution.ray.messages import outcome_to_json
from mlcbuild.execution.ray.settings import RaySettings
from tests.execution.ray.test_cluster import BRIDGES, OURS, Told

PATIENCE_SECONDS = 60
ACTION = Action(
    identifier="//:any",
    mnemonic="Any",
    owner="//:any",
    inputs=(),
    outputs=("out",),
    command=ToolCall(arguments=("true",)),
)


class World:
    """An executor whose cluster is what a test says."""

    def __init__(self, folder: Path, *, slots: int | None = None, falls_back: bool = False, **settings: Any) -> None:
        BRIDGES.clear()
        self.said: list[str] = []
        self.outcomes: queue.SimpleQueue[ExecutionOutcome] = queue.SimpleQueue()
        self.executor = RayExecutor(
            DiskStore(folder, DigestFunction.BLAKE3),
            settings=RaySettings(address="10.0.0.1:6379", **settings),
            slots=slots,
            toolchains=(),
            environment=lambda: OURS,
            falls_back=falls_back,
            say=self.said.append,
        )
        self.executor.start(self.outcomes.put)
        self.executor.unmet_requirement(ACTION)
        wait_for(lambda: BRIDGES)
        self.bridge = BRIDGES[0]

    def join(self, *names: str, cpus: int = 1) -> None:
        self.bridge.nodes(*names, **{name: {"cpus": cpus} for name in names})
        for name in names:
            self.bridge.describes(name, OURS)
        wait_for(lambda: self.executor._cluster.state is module.ClusterState.READY)

    def submit(self, identifier: str) -> int:
        """The number of the call that it becomes."""
        known = len(self.bridge.others)
        request = ExecutionRequest(
            identifier=identifier,
            mnemonic="Command",
            command=ToolCall(arguments=("/bin/true",)),
            inputs=(),
            outputs=("out",),
            environment=(),
            requirements=ExecutionRequirements(),
        )
        self.executor.submit(request)
        wait_for(lambda: len(self.bridge.others) > known)
        return self.bridge.others[-1]

    def errs(self, number: int, node: str) -> ExecutionOutcome:
        self.bridge.begun(number, node)
        self.bridge.answer(number, {"error": "no store\n  advice", "disk_is_full": False, "node_id": node})
        return self.outcomes.get(timeout=PATIENCE_SECONDS)

    def ends(self, number: int, node: str, kind: OutcomeKind, message: str = "") -> ExecutionOutcome:
        outcome = ExecutionOutcome(identifier="//:a", kind=kind, message=message)
        told = {"outcome": outcome_to_json(outcome), "kept": [], "disk_is_full": False, "sent": [], "remote_errors": []}
        self.bridge.tell({"is": "answer", "number": number}, pack({**told, "node_id": node}, [b""]))
        return self.outcomes.get(timeout=PATIENCE_SECONDS)


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    monkeypatch.setattr(module, "BridgeClient", Told)
    made: list[World] = []

    def world(**settings: Any) -> World:
        made.append(World(tmp_path, **settings))
        return made[-1]

    yield world
    for each in made:
        each.executor.close()


@pytest.mark.parametrize("cpus", [1, 3, 128, 129, 5000])
def test_a_cluster_of_any_size_gets_twice_as_many_actions_as_it_has_cpus(make: Callable[..., World], cpus: int) -> None:
    world = make()
    world.join("a", "b", cpus=cpus)
    assert world.executor.slots == 4 * cpus


def test_jobs_limit_the_actions_and_a_cluster_that_can_grow_gets_more(make: Callable[..., World]) -> None:
    limited = make(slots=10)
    limited.join("a", cpus=1000)
    assert limited.executor.slots == 10
    kind = MachineResources(cpus=64)
    growing = make(may_scale_to=(kind,))
    growing.join("a", cpus=1000)
    assert growing.executor.slots > 2000
    few = make(may_scale_to=(kind,), slots=300)
    few.join("a", cpus=1)
    assert few.executor.slots == 300


def test_an_error_of_a_node_is_a_loss_and_the_action_avoids_that_node(make: Callable[..., World]) -> None:
    world = make()
    world.join("a", "b", "c", "d")
    outcome = world.errs(world.submit("//:a"), "a")
    assert (outcome.kind, outcome.message) == (OutcomeKind.LOST, "node a: no store")
    world.submit("//:a")
    assert world.bridge.options[-1]["label_selector"] == {"ray.io/node-id": "!in(a)"}
    outcome = world.ends(world.bridge.others[-1], "b", OutcomeKind.ENVIRONMENT, "a tool is missing")
    assert (outcome.kind, outcome.message) == (OutcomeKind.LOST, "node b: a tool is missing")
    assert world.ends(world.submit("//:a"), "c", OutcomeKind.SUCCEEDED).kind is OutcomeKind.SUCCEEDED
    world.submit("//:a")
    assert "label_selector" not in world.bridge.options[-1]


def test_an_action_that_fails_on_three_nodes_fails_and_names_them(make: Callable[..., World]) -> None:
    world = make()
    world.join("a", "b", "c", "d")
    for node in ("a", "b"):
        assert world.errs(world.submit("//:a"), node).kind is OutcomeKind.LOST
    outcome = world.errs(world.submit("//:a"), "c")
    assert outcome.kind is OutcomeKind.ENVIRONMENT
    assert outcome.message == "3 nodes of the cluster; the last of them, node c: no store\n  advice"
    assert world.said == []


def test_an_error_of_the_only_node_is_that_of_the_action_and_names_the_node(make: Callable[..., World]) -> None:
    world = make()
    world.join("a")
    outcome = world.errs(world.submit("//:a"), "a")
    assert (outcome.kind, outcome.message) == (OutcomeKind.ENVIRONMENT, "node a: no store\n  advice")


def test_a_node_whose_processes_cannot_even_start_is_named_too(make: Callable[..., World]) -> None:
    """Ray tells the address of the machine."""
    world = make()
    world.bridge.nodes("a", "b", a={"address": "10.0.0.7"})
    for name in ("a", "b"):
        world.bridge.describes(name, OURS)
    wait_for(lambda: world.executor._cluster.state is module.ClusterState.READY)
    failure = {"kind": "environment", "message": "a node cannot run actions: no module", "peak_bytes": 0}
    told = {"is": "failure", "number": world.submit("//:a"), "address": "10.0.0.7", **failure}
    world.bridge.tell(told, b"")
    outcome = world.outcomes.get(timeout=PATIENCE_SECONDS)
    assert (outcome.kind, outcome.message) == (OutcomeKind.LOST, "node a: a node cannot run actions: no module")


def test_a_worker_that_dies_again_and_again_is_counted_against_its_node(make: Callable[..., World]) -> None:
    world = make()
    world.join("a", "b")
    for number in range(3):
        call = world.submit(f"//:{number}")
        world.bridge.begun(call, "a")
        failure = {"kind": "lost", "message": "its worker process died", "peak_bytes": 0}
        world.bridge.tell({"is": "failure", "number": call, "address": "", **failure}, b"")
        assert "node a" in world.outcomes.get(timeout=PATIENCE_SECONDS).message
    assert len(world.said) == 1
    assert "node a of the Ray cluster is not used any more" in world.said[0]


def test_with_auto_an_action_of_the_only_node_runs_here_after_its_errors(make: Callable[..., World]) -> None:
    world = make(falls_back=True)
    world.join("a")
    for number in range(3):
        assert world.errs(world.submit(f"//:{number}"), "a").kind is OutcomeKind.LOST
    assert "the cluster has no node that may run actions" in world.executor.unmet_requirement(ACTION)


def test_what_waited_when_a_node_fell_silent_is_made_again_without_a_loss(make: Callable[..., World]) -> None:
    world = make()
    world.join("a", "b")
    first = world.submit("//:a")
    world.bridge.silent("a")
    wait_for(lambda: world.bridge.others[-1] != first)
    again = world.bridge.others[-1]
    assert world.bridge.options[-1]["label_selector"] == {"ray.io/node-id": "!in(a)"}
    assert world.outcomes.empty()
    world.bridge.answer(first, {"error": "too late", "disk_is_full": False, "node_id": "a"})
    assert world.ends(again, "b", OutcomeKind.SUCCEEDED).kind is OutcomeKind.SUCCEEDED
    assert world.outcomes.empty()
