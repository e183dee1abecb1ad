"""What happens during a build, told as values: the console, the report, the profile and the event log all read these.

Times are seconds since the build began, from a monotonic clock; the driver stamps them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class ActionStatus(enum.Enum):
    """How an action came to be done. The values are those of the build report."""

    UP_TO_DATE = "up_to_date"  # same key as in this workspace's last build
    DISK_HIT = "disk_hit"
    REMOTE_HIT = "remote_hit"
    EXECUTED_LOCAL = "executed_local"
    EXECUTED_RAY = "executed_ray"
    FAILED = "failed"
    SKIPPED = "skipped"  # something it needs failed, or the build stopped before it ran


class Cause(enum.Enum):
    """Why an action ran, where a result would have done."""

    FIRST = "first build"  # this workspace has not built it, and no cache had it
    CHANGED = "changed"  # its inputs, its command or its code
    NO_RESULT = "no result"  # nothing changed since it was built here, but no cache has the result any more
    OUTPUTS_GONE = "outputs gone"  # it had a result whose files had gone
    ASKED = "asked"  # the user wants every action to run
    NEVER_CACHED = "never cached"  # a measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStarted:
    invocation: str  # a UUID
    targets: tuple[str, ...]
    time: float = 0.0
    jobs: int = 0  # how many actions run at once at most


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionsAdded:
    """Actions became known: all at the start, more by discovery. `total` counts every action known so far."""

    count: int
    total: int
    discovered_by: str = ""
    time: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionStarted:
    """An action began to run on an executor (a look-up that hits starts nothing)."""

    identifier: str
    mnemonic: str
    executor: str
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFinished:
    """An action is done. For an executed one `start` is when it began to run, `worker` where."""

    identifier: str
    mnemonic: str
    owner: str
    status: ActionStatus
    start: float
    time: float
    key: str = ""  # the hash of its REAPI Action; "" where it never had one
    worker: str = ""
    message: str = ""  # why it failed or was skipped
    log: bytes = b""
    exit_code: int = 0
    executor: str = ""  # "" where nothing ran
    node: str = ""  # the machine, where it is not this one
    queued_seconds: float = 0.0  # between being given to the executor and its start
    input_seconds: float = 0.0  # of the run, for laying out and fetching inputs
    output_seconds: float = 0.0  # of the run, for storing and sending outputs
    peak_bytes: int = 0  # the largest resident set; 0 where it was not measured
    cause: Cause | None = None  # None where nothing ran
    previous_key: str = ""  # what it was built under here before, where that differs from `key`


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something the user should know that fails nothing: a cache that degraded, a worker that was lost."""

    message: str
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFinished:
    """A requested target is built, or not. `outputs` are paths relative to the workspace."""

    label: str
    success: bool
    outputs: tuple[str, ...] = ()
    error: str = ""
    time: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """One action on the critical path, with the seconds it took."""

    identifier: str
    mnemonic: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack:
    """How much longer an action that ran could have taken before it would have been on the critical path."""

    identifier: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFinished:
    success: bool
    interrupted: bool
    wall_seconds: float
    counts: tuple[tuple[ActionStatus, int], ...]  # every status, in declaration order
    critical_path: tuple[PathStep, ...] = ()
    slacks: tuple[Slack, ...] = ()  # of all that ran and is not on the critical path
    bytes_downloaded: int = 0
    bytes_uploaded: int = 0
    time: float = field(default=0.0)


BuildEvent = BuildStarted | ActionsAdded | ActionStarted | ActionFinished | Notice | TargetFinished | BuildFinished
