"""What the scheduler remembers of each source file, action and target: records that only the scheduler changes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import Action, Artifact
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.instructions import Ending
from mlcbuild.engine.scheduler_events import RequestedTarget, ResultFound


class NodeState(enum.Enum):
    """Where an action or a target stands."""

    UNWANTED = "unwanted"  # known, but nothing asked for needs it
    WAITING = "waiting"  # for `pending` producers
    LOOKING_UP = "looking up"
    JOINED = "joined"  # waits for `leader`, which has the same key
    READY = "ready"  # to run, once there is room
    RUNNING = "running"
    DISCOVERING = "discovering"  # has outputs, its manifest is being read
    DELIVERING = "delivering"  # a target whose files are being put in place
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


ENDED = frozenset({NodeState.DONE, NodeState.FAILED, NodeState.SKIPPED})
BROKEN = frozenset({NodeState.FAILED, NodeState.SKIPPED})


@dataclass(slots=True, eq=False)
class SourceNode:
    """A file of the workspace. Neither `digest` nor `error`: it is being digested."""

    path: str
    digest: Digest | None = None
    is_executable: bool = False
    error: str = ""
    waiters: list[ActionNode | TargetNode] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class TargetNode:
    """A requested target: a consumer of artifacts as an action is, with delivery in place of execution."""

    target: RequestedTarget
    state: NodeState = NodeState.UNWANTED
    pending: int = 0
    rewinds: int = 0

    @property
    def name(self) -> str:
        return self.target.label

    @property
    def needs(self) -> tuple[tuple[str, Artifact], ...]:
        return self.target.outputs


@dataclass(slots=True, eq=False)
class ActionNode:
    """An action. While WAITING, it is `pending` times in the waiters of others, once for each of them."""

    action: Action
    index: int  # in the order in which actions became known
    discovered_by: str
    needs: tuple[tuple[str, Artifact], ...]
    state: NodeState = NodeState.UNWANTED
    pending: int = 0
    waiters: list[ActionNode | TargetNode] = field(default_factory=list)
    key: Digest | None = None
    inputs: tuple[FileEntry, ...] = ()  # as of `key`; dropped when the action ends
    sources: tuple[str, ...] = ()  # workspace paths among `inputs`
    outputs: tuple[FileEntry, ...] | None = None  # kept while its blobs are made again
    by_path: dict[str, FileEntry] | None = None  # of `outputs`, made when first asked for
    leader: ActionNode | None = None
    followers: list[ActionNode] = field(default_factory=list)
    rerun_key: Digest | None = None  # under this key a look-up is useless: it missed, or names blobs that have gone
    inline_manifest: bytes | None = None
    discovered_from: Digest | None = None  # the manifest that `groups` came from
    groups: Mapping[str, tuple[Artifact, ...]] | None = None
    ending: Ending | None = None  # how `outputs` came to be
    rewinds: int = 0
    losses: int = 0
    shortages: int = 0  # runs that memory was not enough for
    memory_bytes: int = 0  # what the next run gets, where more than it asks for; 0 for that
    is_asked_for: bool = False  # a look-up is on its way, though nobody waits for it any longer
    failure: str = ""  # of a run, while a look-up is on its way that may know better
    late_result: ResultFound | None = None  # came while the action ran, which was told to stop
    priority: float = -1.0  # seconds of the longest path from here to a target; negative: not computed yet
    message: str = ""
    blocked_by: str = ""  # for SKIPPED: the action whose failure is the cause

    @property
    def name(self) -> str:
        return self.action.identifier


Consumer = ActionNode | TargetNode
