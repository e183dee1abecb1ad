"""How a build treats nodes that answer late, differ or die, given the messages of the process that talks to Ray."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.errors import InfrastructureError
from mlcbuild.execution.ray import cluster as module
from mlcbuild.execution.ray.build_context import BuildContext
from mlcbuild.execution.ray.call_failures import NODE_DIED, NODE_SILENT
from mlcbuild.execution.ray.calls import NodeLostError, PendingAnswer
from mlcbuild.execution.ray.cluster import Cluster, ClusterState
from mlcbuild.execution.ray.environment_fingerprint import EnvironmentFingerprint
from mlcbuild.execution.ray.frames import pack, unpack
from mlcbuild.execution.ray.settings import RaySettings

OURS = EnvironmentFingerprint(components={"mlcbuild": "0.1.0 aaaa"})
THEIRS = EnvironmentFingerprint(components={"mlcbuild": "0.1.0 bbbb"})
DIFFERENCE = "mlcbuild: 0.1.0 bbbb there, 0.1.0 aaaa here"


class Told:
    """Replaces that process: records the calls to it, and sends what a test says."""

    def __init__(
        self, settings: RaySettings, *, on_frame: Callable[[Mapping[str, Any], bytes], None], on_end: object
    ) -> None:
        self.tell = on_frame
        self.asked: dict[str, int] = {}  # node → the call that asks for its description
        self.others: list[int] = []
        self.options: list[Mapping[str, Any]] = []  # of these others
        self.cancelled: list[int] = []
        self._told = threading.Condition()
        BRIDGES.append(self)

    def call(self, number: int, options: Mapping[str, Any], payload: bytes) -> None:
        with self._told:
            if unpack(payload)[0]["call"] == "describe":
                self.asked[options["node"]] = number
            else:
                self.others.append(number)
                self.options.append(options)
            self._told.notify_all()

    def nodes(self, *names: str, **different: Mapping[str, Any]) -> None:
        each = {"address": "127.0.0.1", "cpus": 1, "gpus": 0, "memory_bytes": 0, "labels": []}
        nodes = [{"id": name, "name": name, **each, **different.get(name, {})} for name in names]
        self.tell({"is": "nodes", "nodes": nodes}, b"")

    def begun(self, number: int, node: str) -> None:
        self.tell({"is": "begun", "number": number, "node": node}, b"")

    def silent(self, *names: str) -> None:
        self.tell({"is": "silent", "nodes": list(names)}, b"")

    def cancel(self, number: int, *, force: bool) -> None:
        self.cancelled.append(number)

    def describes(self, node: str, environment: EnvironmentFingerprint, *, shares_store: bool = False) -> None:
        self.wait_for_question(node)
        self.answer(self.asked[node], {"environment": environment.components, "shares_store": shares_store})

    def wait_for_question(self, node: str) -> None:
        with self._told:
            assert self._told.wait_for(lambda: node in self.asked, 60)

    def answer(self, number: int, head: Mapping[str, Any]) -> None:
        self.tell({"is": "answer", "number": number}, pack(head))

    def close(self) -> None:
        pass


BRIDGES: list[Told] = []


class World:
    def __init__(self, tmp_path: Path, **settings: Any) -> None:
        BRIDGES.clear()
        self.said: list[str] = []
        self.settled = threading.Event()
        self.cluster = Cluster(
            RaySettings(address="10.0.0.1:6379", **settings),
            context=BuildContext(
                root=tmp_path,
                function=DigestFunction.BLAKE3,
                remote=None,
                toolchains=(),
                sandbox=False,
                idle_seconds=1.0,
            ),
            environment=lambda: OURS,
            numbers=itertools.count(1),
            say=self.said.append,
            on_ready=self.settled.set,
            on_lost=lambda _: None,
            on_failed=self.settled.set,
        )
        self.cluster.connect()
        while not BRIDGES:
            self.settled.wait(0.01)
        self.bridge = BRIDGES[0]

    def state(self) -> ClusterState:
        assert self.settled.wait(60)
        return self.cluster.state


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BridgeClient", Told)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_OTHERS_SECONDS", 0.05)


def test_a_node_that_does_not_answer_keeps_nobody_waiting(tmp_path: Path, impatient: None) -> None:
    world = World(tmp_path, connect_seconds=3600.0)
    world.bridge.nodes("silent", "quick")
    world.bridge.describes("quick", OURS, shares_store=True)
    assert world.state() is ClusterState.READY
    # It may be given actions, as it compares itself with each of them; of its store nothing is known.
    assert (world.cluster.nodes.cpus, world.cluster.nodes.all_share_store) == (2, False)
    assert world.said == []


def test_a_late_answer_counts(tmp_path: Path, impatient: None) -> None:
    world = World(tmp_path, connect_seconds=3600.0)
    world.bridge.nodes("late", "unlike", "quick")
    world.bridge.describes("quick", OURS, shares_store=True)
    assert world.state() is ClusterState.READY
    world.bridge.describes("late", OURS, shares_store=True)
    world.bridge.describes("unlike", THEIRS)
    assert world.cluster.nodes.cpus == 2
    assert world.said == [f"node unlike of the Ray cluster is not used, because it differs: {DIFFERENCE}"]
    options = world.cluster.nodes.options_for(ExecutionRequirements())
    assert options["label_selector"] == {"ray.io/node-id": "!in(unlike)"}
    world.bridge.nodes("late", "quick")
    assert world.cluster.nodes.all_share_store


def test_where_none_is_alike_it_fails_with_what_each_has(tmp_path: Path) -> None:
    world = World(tmp_path, connect_seconds=4.0)
    world.bridge.nodes("unlike", "silent")
    world.bridge.describes("unlike", THEIRS)
    assert world.state() is ClusterState.FAILED
    assert isinstance(world.cluster.error, InfrastructureError)
    assert world.cluster.error.advice[:2] == (f"node unlike: {DIFFERENCE}", "node silent: it does not answer")
    assert world.said == []


def test_a_call_to_a_node_that_went_away_is_answered(tmp_path: Path) -> None:
    """Whatever Ray says about it, and whenever."""
    world = World(tmp_path)
    world.bridge.nodes("going", "staying")
    world.bridge.describes("going", OURS)
    world.bridge.describes("staying", OURS)
    assert world.state() is ClusterState.READY
    lost: list[str] = []

    def ask(node: str) -> None:
        try:
            world.cluster.ask(node, {"call": "get piece"})
        except NodeLostError as error:
            lost.append(str(error))

    threads = [threading.Thread(target=ask, args=(node,)) for node in ("going", "staying")]
    for thread in threads:
        thread.start()
    anywhere = PendingAnswer()
    payload = pack({"call": "execute"})
    world.cluster.call(99, {"num_cpus": 1}, payload, on_answer=anywhere.on_answer, on_failure=anywhere.on_failure)
    while len(world.bridge.others) < 3:
        world.settled.wait(0.01)
    world.bridge.nodes("staying", "new")
    threads[0].join(60)
    assert lost == [f"node going: {NODE_DIED}"]
    assert not anywhere.wait(0)
    for number in world.bridge.others:
        world.bridge.answer(number, {})
    threads[1].join(60)
    assert anywhere.wait(60)
    assert anywhere.failure is None
    assert lost == [f"node going: {NODE_DIED}"]


def test_nodes_that_all_went_away_before_they_answered_are_waited_for(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.bridge.nodes("going")
    world.bridge.wait_for_question("going")
    world.bridge.nodes()
    assert world.state() is ClusterState.READY
    assert "no node" in world.cluster.nodes.unmet_requirement(ExecutionRequirements())


# Nodes that fall silent


class Calls:
    """Calls that any node may answer, as those of actions are."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.answers: dict[int, PendingAnswer] = {}
        self.moved: list[int] = []

    def make(self, number: int) -> None:
        answer = self.answers[number] = PendingAnswer()
        self._world.cluster.call(
            number,
            {"num_cpus": 1},
            pack({"call": "execute"}),
            on_answer=answer.on_answer,
            on_failure=answer.on_failure,
            on_move=lambda: self.moved.append(number),
        )

    def failed(self) -> dict[int, str]:
        return {number: each.failure.message for number, each in self.answers.items() if each.failure is not None}


def silent_world(tmp_path: Path, *nodes: str) -> tuple[World, Calls]:
    world = World(tmp_path)
    world.bridge.nodes(*nodes)
    for node in nodes:
        world.bridge.describes(node, OURS)
    assert world.state() is ClusterState.READY
    return world, Calls(world)


def test_calls_that_a_silent_node_has_begun_fail_and_those_that_wait_are_made_again(tmp_path: Path) -> None:
    world, calls = silent_world(tmp_path, "a", "b")
    for number in (101, 102, 103):
        calls.make(number)
    world.bridge.begun(101, "a")
    world.bridge.begun(102, "b")
    world.bridge.silent("a")
    assert calls.failed() == {101: NODE_SILENT}
    assert calls.moved == [103]
    assert sorted(world.bridge.cancelled) == [101, 103]
    assert world.said == ["node a of the Ray cluster does not answer: its actions run elsewhere"]
    options = world.cluster.nodes.options_for(ExecutionRequirements())
    assert options["label_selector"] == {"ray.io/node-id": "!in(a)"}
    # A call may have been on its way to the node, and its announcement may come late.
    calls.make(104)
    world.bridge.begun(104, "a")
    assert calls.failed() == {101: NODE_SILENT, 104: NODE_SILENT}
    world.bridge.silent("a")
    assert calls.moved == [103]
    world.bridge.silent()
    assert world.said[1:] == ["node a of the Ray cluster answers again"]
    assert "label_selector" not in world.cluster.nodes.options_for(ExecutionRequirements())


def test_a_call_that_has_begun_on_a_node_that_died_fails_at_once(tmp_path: Path) -> None:
    world, calls = silent_world(tmp_path, "a", "b")
    calls.make(101)
    calls.make(102)
    world.bridge.begun(101, "a")
    world.bridge.nodes("b")
    assert calls.failed() == {101: NODE_DIED}
    assert calls.moved == []


def test_if_no_node_answers_the_cause_is_elsewhere_and_nothing_is_given_up(tmp_path: Path) -> None:
    world, calls = silent_world(tmp_path, "a", "b")
    calls.make(101)
    world.bridge.begun(101, "a")
    world.bridge.silent("a", "b")
    assert calls.failed() == {}
    assert world.said == []
    world.bridge.silent("a")
    assert calls.failed() == {101: NODE_SILENT}


def test_an_action_that_only_a_silent_node_can_run_waits_for_it(tmp_path: Path) -> None:
    """Its label is not given up: the node may come back, and Ray tells when it is dead."""
    world = World(tmp_path)
    world.bridge.nodes("a", "b", a={"labels": [["arch", "sm_90"]]})
    for node in ("a", "b"):
        world.bridge.describes(node, OURS)
    assert world.state() is ClusterState.READY
    world.bridge.silent("a")
    wanted = ExecutionRequirements(labels=(("arch", "sm_90"),))
    assert world.cluster.nodes.unmet_requirement(wanted) == ""
    assert world.cluster.nodes.options_for(wanted)["label_selector"] == {"arch": "sm_90"}


# Nodes that fail


def test_a_node_on_which_three_actions_in_a_row_fail_is_excluded(tmp_path: Path) -> None:
    world, _ = silent_world(tmp_path, "a", "b")
    nodes = world.cluster.nodes
    assert [nodes.count_failure("a", "no store") for _ in range(2)] == [False, False]
    nodes.count_success("a")
    assert [nodes.count_failure("a", "no store") for _ in range(3)] == [False, False, True]
    assert world.said == [
        "node a of the Ray cluster is not used any more: 3 actions in a row could not run there; the last: no store"
    ]
    assert [nodes.count_failure("b", "no store") for _ in range(5)] == [False] * 5  # the last one
    assert nodes.cpus == 1


def test_nodes_are_not_blamed_for_an_action_that_fails_on_all_of_them(tmp_path: Path) -> None:
    world, _ = silent_world(tmp_path, "a", "b")
    nodes = world.cluster.nodes
    for _ in range(5):
        nodes.count_failure("a", "it needs what no node has")
        nodes.forgive(["a", "b"])
    assert world.said == []


def test_nodes_that_an_action_avoids_are_left_out_if_others_can_run_it(tmp_path: Path) -> None:
    world, _ = silent_world(tmp_path, "a", "b")
    options_for = world.cluster.nodes.options_for
    assert options_for(ExecutionRequirements(), avoided=["a"])["label_selector"] == {"ray.io/node-id": "!in(a)"}
    assert "label_selector" not in options_for(ExecutionRequirements(), avoided=["a", "b"])
    assert "label_selector" not in options_for(ExecutionRequirements(), avoided=["gone"])


def test_nodes_of_one_host_are_told_apart(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.bridge.nodes("aaaaaaaaaa", "bbbbbbbbbb", "c", aaaaaaaaaa={"name": "host"}, bbbbbbbbbb={"name": "host"})
    names = [world.cluster.nodes.name_of(node) for node in ("aaaaaaaaaa", "bbbbbbbbbb", "c")]
    assert names == ["node host (aaaaaaaa)", "node host (bbbbbbbb)", "node c"]
