"""What the scheduler remembers of each source file, action and target.

Only the scheduler changes these records, and only `mlcbuild.engine.graph.Graph.move` changes a `state`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import Action, Artifact
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.instructions import Ending
from mlcbuild.engine.scheduler_events import RequestedTarget, ResultFound
from mlcbuild.engine.transitions import (
    ACTION_TRANSITIONS,
    SOURCE_TRANSITIONS,
    TARGET_TRANSITIONS,
    Counted,
    NodeState,
    moves_of,
)

Moves = Mapping[NodeState, Mapping[NodeState, Counted]]


@dataclass(slots=True, eq=False)
class SourceNode:
    """A file of the workspace. It has a `digest` once it is DONE, and an `error` once it has FAILED."""

    moves: ClassVar[Moves] = moves_of(SOURCE_TRANSITIONS)

    path: str
    state: NodeState = NodeState.UNWANTED
    digest: Digest | None = None
    is_executable: bool = False
    error: str = ""
    waiters: list[ActionNode | TargetNode] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.path


@dataclass(slots=True, eq=False)
class TargetNode:
    """A requested target. It consumes artifacts as an action does, and is delivered where an action runs."""

    moves: ClassVar[Moves] = moves_of(TARGET_TRANSITIONS)

    target: RequestedTarget
    state: NodeState = NodeState.UNWANTED
    pending: int = 0
    rewinds: int = 0

    @property
    def name(self) -> str:
        return self.target.label

    @property
    def title(self) -> str:
        return self.target.label

    @property
    def needs(self) -> tuple[tuple[str, Artifact], ...]:
        return self.target.outputs

    @property
    def waits_for(self) -> tuple[Artifact, ...]:
        """What has to be made, and is not among its files."""
        return self.target.builds


@dataclass(slots=True, eq=False)
class ActionNode:
    """An action. While it is WAITING, it is in the `waiters` of `pending` other nodes, once in each."""

    moves: ClassVar[Moves] = moves_of(ACTION_TRANSITIONS)

    action: Action
    index: int  # in the order in which actions became known
    discovered_by: str
    needs: tuple[tuple[str, Artifact], ...]
    state: NodeState = NodeState.UNWANTED
    pending: int = 0
    waiters: list[ActionNode | TargetNode] = field(default_factory=list)
    key: Digest | None = None
    inputs: tuple[FileEntry, ...] = ()  # what `key` was made of; dropped when the action is done
    sources: tuple[str, ...] = ()  # workspace paths among `inputs`
    outputs: tuple[FileEntry, ...] | None = None  # kept while the action runs again because blobs have gone
    by_path: dict[str, FileEntry] | None = None  # of `outputs`, made when first asked for
    placed: dict[tuple[str, str], tuple[FileEntry, ...]] = field(default_factory=dict)  # large ones, by path and place
    leader: ActionNode | None = None  # while JOINED
    followers: list[ActionNode] = field(default_factory=list)
    shared_with: str = ""  # the action of the same key whose result or failure this one took
    shared_by: tuple[str, ...] = ()  # the actions that took this one's
    rerun_key: Digest | None = None  # a lookup of this key is useless: it missed, or names blobs that have gone
    inline_manifest: bytes | None = None
    discovered_from: Digest | None = None  # the manifest that `groups` came from
    groups: Mapping[str, tuple[Artifact, ...]] | None = None
    ending: Ending | None = None  # how `outputs` came to be
    rewinds: int = 0  # how often it started again because blobs had gone
    is_made_again: bool = False  # blobs of its own outputs had gone
    losses: int = 0  # runs that were lost with their executor
    shortages: int = 0  # runs that had too little memory
    memory_bytes: int = 0  # for the next run, where that is more than the action asks for; else 0
    has_overtaken_lookup: bool = False  # its lookup was slow and is still in flight; nobody waits for the answer
    failure: str = ""  # why the run failed, while AWAITING_LOOKUP
    late_result: ResultFound | None = None  # from an overtaken lookup, while the run is being stopped
    priority: float = -1.0  # seconds of the longest path from here to a target; negative: not computed yet
    message: str = ""  # why it FAILED or was SKIPPED
    blocked_by: str = ""  # while SKIPPED: the action whose failure is the cause

    @property
    def name(self) -> str:
        return self.action.identifier

    @property
    def title(self) -> str:
        """The action for people; `name` identifies it."""
        return self.action.title


Consumer = ActionNode | TargetNode
Node = SourceNode | ActionNode | TargetNode
