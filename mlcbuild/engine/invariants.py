"""What holds of a scheduler between two steps. Tests check it after each step."""

from __future__ import annotations

from collections import Counter

from mlcbuild.engine.action import CachePolicy
from mlcbuild.engine.nodes import ActionNode, Consumer, Node, SourceNode
from mlcbuild.engine.scheduler import Scheduler
from mlcbuild.engine.transitions import ENDED, IN_FLIGHT, UNFINISHED, NodeState
from mlcbuild.errors import InternalError

# What the leader of a key may be doing, apart from having joined another one.
_LEADING = (NodeState.LOOKING_UP, NodeState.AWAITING_LOOKUP, NodeState.READY, NodeState.RUNNING)


def validate(scheduler: Scheduler) -> None:
    """Raises InternalError that tells the first rule which is broken. Takes time linear in the graph."""
    _validate_counts(scheduler)
    _validate_waiters(scheduler)
    for node in scheduler.graph.actions.values():
        _validate_action(scheduler, node)
    _validate_leaders(scheduler)
    _validate_queue(scheduler)
    _require(not scheduler.finished or not scheduler.graph.unfinished, "finished too early")


def _validate_counts(scheduler: Scheduler) -> None:
    graph = scheduler.graph
    nodes: list[Node] = [*graph.sources.values(), *graph.actions.values(), *graph.targets.values()]
    for name, counted, states in (
        ("in flight", graph.in_flight, IN_FLIGHT),
        ("unfinished", graph.unfinished, UNFINISHED),
        ("being delivered", graph.delivering, {NodeState.DELIVERING}),
    ):
        recounted = sum(node.state in states for node in nodes)
        _require(counted == recounted, f"{counted} nodes are counted as {name}, {recounted} are")


def _validate_waiters(scheduler: Scheduler) -> None:
    graph = scheduler.graph
    waits: Counter[int] = Counter()
    producers: list[ActionNode | SourceNode] = [*graph.actions.values(), *graph.sources.values()]
    for producer in producers:
        ended = producer.state in ENDED
        _require(not (ended and producer.waiters), f"{producer.name} has ended, and others wait for it")
        waits.update(id(waiter) for waiter in producer.waiters)
    consumers: list[Consumer] = [*graph.actions.values(), *graph.targets.values()]
    for node in consumers:
        if node.state is NodeState.WAITING:
            _require(
                waits[id(node)] == node.pending,
                f"{node.name} waits for {node.pending} and is registered with {waits[id(node)]}",
            )
            _require(node.pending > 0 or scheduler.state.is_stopping, f"{node.name} waits for nothing")
        elif node.state not in ENDED:
            _require(waits[id(node)] == 0, f"{node.name} is {node.state.value} and registered as waiting")


def _validate_action(scheduler: Scheduler, node: ActionNode) -> None:
    is_running = node.state is NodeState.RUNNING
    _require(is_running == (node.name in scheduler.queue.running), f"{node.name}: running or not?")
    _require(
        (node.state is NodeState.JOINED) == (node.leader is not None) or node.state in ENDED,
        f"{node.name}: joined or not?",
    )
    if node.state is NodeState.JOINED and node.leader is not None:
        leader = node.leader
        _require(
            leader.state in (*_LEADING, NodeState.JOINED),
            f"{node.name} joined {leader.name}, which is {leader.state.value}",
        )
        _require(node in leader.followers, f"{node.name} is not among the followers of {leader.name}")
        _require(node.key == leader.key, f"{node.name} joined {leader.name}, which has another key")
    _require(
        (node.state is NodeState.AWAITING_LOOKUP) <= (node.has_overtaken_lookup and bool(node.failure)),
        f"{node.name} awaits a lookup that is not in flight, or has not failed",
    )
    if node.state is NodeState.DONE:
        _require(node.outputs is not None, f"{node.name} is done without outputs")
        _require(node.action.discoverer is None or node.groups is not None, f"{node.name} has not discovered")


def _validate_leaders(scheduler: Scheduler) -> None:
    for key, leader in scheduler.state.leaders.items():
        _require(leader.key == key, f"{leader.name} leads a key that it left")
        _require(
            leader.state in (*_LEADING, NodeState.DISCOVERING, NodeState.DONE),
            f"{leader.name} leads and is {leader.state.value}",
        )


def _validate_queue(scheduler: Scheduler) -> None:
    queue = scheduler.queue
    keys = Counter(node.key for node in queue.running.values() if node.action.cache is not CachePolicy.NONE)
    _require(all(count == 1 for count in keys.values()), "two actions of one key are running")
    slots = 0
    for node in queue.running.values():
        taken = queue.taken(node.name)
        slots += taken
        _require(1 <= taken <= max(1, node.action.requirements.cpus), f"{node.name} takes {taken} slots")
    _require(queue.used_slots == slots, f"{queue.used_slots} slots are counted, {slots} are used")
    _require(slots <= queue.jobs, f"{slots} slots of {queue.jobs} are used")


def _require(holds: bool, story: str) -> None:
    if not holds:
        raise InternalError(f"the scheduler is in an impossible state: {story}")
