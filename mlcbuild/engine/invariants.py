"""What holds of a scheduler between two steps: checked by tests after each of them."""

from __future__ import annotations

from collections import Counter

from mlcbuild.engine.action import CachePolicy
from mlcbuild.engine.nodes import ENDED, ActionNode, NodeState, SourceNode, TargetNode
from mlcbuild.engine.scheduler import Scheduler
from mlcbuild.errors import InternalError

_ANSWERED = (NodeState.LOOKING_UP, NodeState.DISCOVERING, NodeState.RUNNING)


def validate(scheduler: Scheduler) -> None:
    """Raises InternalError with the story of the first rule that is broken. Takes time linear in the graph."""
    state = scheduler.state
    actions, targets = scheduler.graph.actions, scheduler.graph.targets
    consumers: list[ActionNode | TargetNode] = [*actions.values(), *targets.values()]
    waits: Counter[int] = Counter()
    producers: list[ActionNode | SourceNode] = [*actions.values(), *scheduler.graph.sources.values()]
    for producer in producers:
        known = bool(producer.digest or producer.error) if isinstance(producer, SourceNode) else False
        ended = known or (isinstance(producer, ActionNode) and producer.state in ENDED)
        _require(not (ended and producer.waiters), f"{_name(producer)} has ended and is still waited for")
        waits.update(id(waiter) for waiter in producer.waiters)

    for node in consumers:
        if node.state is NodeState.WAITING:
            _require(
                waits[id(node)] == node.pending,
                f"{node.name} waits for {node.pending}, not for all it is registered with",
            )
            stuck = node.pending == 0 and not (state.stopped_by or state.cancelled)
            _require(not stuck, f"{node.name} waits for nothing")
        elif node.state not in ENDED:
            _require(waits[id(node)] == 0, f"{node.name} is {node.state.value} and registered as waiting")

    for node in actions.values():
        _require(
            (node.state is NodeState.RUNNING) == (node.name in scheduler.queue.running), f"{node.name}: running or not?"
        )
        _require(
            (node.state is NodeState.JOINED) == (node.leader is not None) or node.state in ENDED,
            f"{node.name}: joined or not?",
        )
        if node.state is NodeState.JOINED and node.leader is not None:
            leading = (NodeState.LOOKING_UP, NodeState.READY, NodeState.RUNNING, NodeState.JOINED)
            _require(
                node.leader.state in leading,
                f"{node.name} joined {node.leader.name}, which is {node.leader.state.value}",
            )
            _require(node in node.leader.followers, f"{node.name} is not known to the one it joined")
            _require(node.key == node.leader.key, f"{node.name} joined an action with another key")
        if node.state is NodeState.DONE:
            _require(node.outputs is not None, f"{node.name} is done without outputs")
            _require(node.action.discoverer is None or node.groups is not None, f"{node.name} has not discovered")

    running = scheduler.queue.running.values()
    for key, leader in state.leaders.items():
        _require(leader.key == key, f"{leader.name} leads a key that it left")
        _require(
            leader.state in (*_ANSWERED, NodeState.READY, NodeState.DONE),
            f"{leader.name} leads and is {leader.state.value}",
        )
    keys = Counter(node.key for node in running if node.action.cache is not CachePolicy.NONE)
    _require(all(count == 1 for count in keys.values()), "two actions of one key are running")
    slots = 0
    for node in running:
        taken = scheduler.queue.taken(node.name)
        slots += taken
        _require(1 <= taken <= max(1, node.action.requirements.cpus), f"{node.name} takes {taken} slots")
    _require(scheduler.queue.used_slots == slots, f"{scheduler.queue.used_slots} slots are counted, {slots} are used")
    _require(slots <= scheduler.queue.jobs, f"{slots} slots of {scheduler.queue.jobs} are used")

    counted = sum(node.state is not NodeState.UNWANTED and node.state not in ENDED for node in consumers)
    _require(state.unsettled == counted, f"{state.unsettled} are counted as unsettled, {counted} are")
    in_flight = (
        sum(node.state in _ANSWERED for node in actions.values())
        + sum(node.state is NodeState.DELIVERING for node in targets.values())
        + sum(node.digest is None and not node.error for node in scheduler.graph.sources.values())
    )
    gave_up = scheduler.finished
    _require(gave_up or state.in_flight == in_flight, f"{state.in_flight} counted in flight, {in_flight} are")
    _require(not scheduler.finished or (counted == 0 and not scheduler.queue.running), "finished too early")


def _require(holds: bool, story: str) -> None:
    if not holds:
        raise InternalError(f"the scheduler is in a state that cannot be: {story}")


def _name(producer: ActionNode | SourceNode) -> str:
    return producer.path if isinstance(producer, SourceNode) else producer.name
