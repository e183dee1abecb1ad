"""The states of sources, actions and targets, and the permitted moves between them.

These tables are the only definition: `mlcbuild.engine.graph.Graph.move` refuses every other move, and
docs/scheduling.md shows the tables and a diagram that is drawn from them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class NodeState(enum.Enum):
    """The state of a source file, an action or a target."""

    UNWANTED = "unwanted"  # known, but nothing that was asked for needs it
    WAITING = "waiting"  # for `pending` producers
    LOOKING_UP = "looking up"  # its result, in the action cache
    JOINED = "joined"  # waits for `leader`, which has the same key
    READY = "ready"  # to run, once there is room
    RUNNING = "running"
    AWAITING_LOOKUP = "awaiting lookup"  # its run failed; a lookup that is still in flight decides
    DISCOVERING = "discovering"  # it has outputs, and its manifest is being read
    DIGESTING = "digesting"  # a source file
    DELIVERING = "delivering"  # the files of a target are being put in place
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # something that it needs failed, or the build stopped before it was done

    # Members are singletons. Hashing them by identity is much faster than by name, as Enum does it.
    __hash__ = object.__hash__


ENDED = frozenset({NodeState.DONE, NodeState.FAILED, NodeState.SKIPPED})
BROKEN = frozenset({NodeState.FAILED, NodeState.SKIPPED})
# An instruction was given, and its answer has not come.
IN_FLIGHT = frozenset(
    {
        NodeState.LOOKING_UP,
        NodeState.RUNNING,
        NodeState.AWAITING_LOOKUP,
        NodeState.DISCOVERING,
        NodeState.DIGESTING,
        NodeState.DELIVERING,
    }
)
# Actions and targets that the build still has to do something about.
UNFINISHED = frozenset(set(NodeState) - ENDED - {NodeState.UNWANTED, NodeState.DIGESTING})


@dataclass(frozen=True, slots=True)
class Transition:
    """A permitted move, and what makes it happen."""

    before: NodeState
    after: NodeState
    cause: str


_S = NodeState

SOURCE_TRANSITIONS = (
    Transition(_S.UNWANTED, _S.DIGESTING, "something that was asked for needs it"),
    Transition(_S.DIGESTING, _S.DONE, "its digest is known"),
    Transition(_S.DIGESTING, _S.FAILED, "it is absent or cannot be read"),
)

ACTION_TRANSITIONS = (
    Transition(_S.UNWANTED, _S.WAITING, "something that was asked for needs it"),
    Transition(_S.WAITING, _S.LOOKING_UP, "its key is known, and no other action of that key is looked up or runs"),
    Transition(_S.WAITING, _S.JOINED, "its key is known, and an action of the same key is looked up or runs"),
    Transition(_S.WAITING, _S.READY, "its key is known, and a lookup is useless: it is never cached, or it runs again"),
    Transition(_S.WAITING, _S.DISCOVERING, "an action of the same key has a result, whose manifest is to be read"),
    Transition(_S.WAITING, _S.DONE, "an action of the same key has a result"),
    Transition(_S.WAITING, _S.FAILED, "an input does not exist, it needs its own output, or it has no key"),
    Transition(_S.WAITING, _S.SKIPPED, "an action that it needs failed, or the build stops"),
    Transition(_S.LOOKING_UP, _S.READY, "there is no result, or the answer takes too long"),
    Transition(_S.LOOKING_UP, _S.JOINED, "there is no result, and an action of the same key is about to run or runs"),
    Transition(_S.LOOKING_UP, _S.DISCOVERING, "there is a result, whose manifest is to be read"),
    Transition(_S.LOOKING_UP, _S.DONE, "there is a result"),
    Transition(_S.LOOKING_UP, _S.SKIPPED, "the build stops"),
    Transition(_S.JOINED, _S.WAITING, "its leader waits again"),
    Transition(_S.JOINED, _S.DISCOVERING, "its leader has a result, whose manifest is to be read"),
    Transition(_S.JOINED, _S.DONE, "its leader has a result"),
    Transition(_S.JOINED, _S.FAILED, "its leader failed"),
    Transition(_S.JOINED, _S.SKIPPED, "the build stops"),
    Transition(_S.READY, _S.RUNNING, "there is room for it"),
    Transition(_S.READY, _S.WAITING, "an action that it needs is being run again"),
    Transition(_S.READY, _S.DISCOVERING, "its overtaken lookup found a result, whose manifest is to be read"),
    Transition(_S.READY, _S.DONE, "its overtaken lookup found a result"),
    Transition(_S.READY, _S.SKIPPED, "the build stops"),
    Transition(_S.RUNNING, _S.READY, "its executor was lost, or it had too little memory"),
    Transition(_S.RUNNING, _S.WAITING, "blobs of its inputs have gone"),
    Transition(_S.RUNNING, _S.AWAITING_LOOKUP, "it failed, and its overtaken lookup is still in flight"),
    Transition(_S.RUNNING, _S.DISCOVERING, "it succeeded or its lookup found a result; the manifest is to be read"),
    Transition(_S.RUNNING, _S.DONE, "it succeeded, or its overtaken lookup found a result"),
    Transition(_S.RUNNING, _S.FAILED, "it failed, or was lost or short of memory too often"),
    Transition(_S.RUNNING, _S.SKIPPED, "it was stopped because the build was cancelled"),
    Transition(_S.AWAITING_LOOKUP, _S.DISCOVERING, "there is a result, whose manifest is to be read"),
    Transition(_S.AWAITING_LOOKUP, _S.DONE, "there is a result"),
    Transition(_S.AWAITING_LOOKUP, _S.FAILED, "there is no result"),
    Transition(_S.AWAITING_LOOKUP, _S.SKIPPED, "the build stops"),
    Transition(_S.DISCOVERING, _S.DONE, "its manifest has been read"),
    Transition(_S.DISCOVERING, _S.WAITING, "its manifest has gone from the store"),
    Transition(_S.DISCOVERING, _S.FAILED, "its manifest is invalid, or has gone too often"),
    Transition(_S.DISCOVERING, _S.SKIPPED, "the build stops"),
    Transition(_S.DONE, _S.WAITING, "blobs of its outputs have gone and are needed"),
    Transition(_S.DONE, _S.FAILED, "blobs of its outputs have gone too often"),
)

TARGET_TRANSITIONS = (
    Transition(_S.UNWANTED, _S.WAITING, "it was asked for"),
    Transition(_S.WAITING, _S.DELIVERING, "all its outputs are made"),
    Transition(_S.WAITING, _S.FAILED, "an output does not exist, or two have one path"),
    Transition(_S.WAITING, _S.SKIPPED, "an action that it needs failed, or the build stops"),
    Transition(_S.DELIVERING, _S.WAITING, "blobs of its outputs have gone"),
    Transition(_S.DELIVERING, _S.DONE, "its files are in place"),
    Transition(_S.DELIVERING, _S.FAILED, "its files cannot be put in place, or have gone too often"),
)


@dataclass(frozen=True, slots=True)
class Counted:
    """What a move adds to the numbers of nodes in flight, unfinished, and being delivered."""

    in_flight: int
    unfinished: int
    delivering: int


def moves_of(transitions: Sequence[Transition]) -> Mapping[NodeState, Mapping[NodeState, Counted]]:
    """State → the states that a node may move to from there, with what the move changes."""
    return {state: {each.after: _counted(each) for each in transitions if each.before is state} for state in NodeState}


def _counted(move: Transition) -> Counted:
    def change(states: frozenset[NodeState]) -> int:
        return (move.after in states) - (move.before in states)

    return Counted(
        in_flight=change(IN_FLIGHT), unfinished=change(UNFINISHED), delivering=change(frozenset({NodeState.DELIVERING}))
    )
