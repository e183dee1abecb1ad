"""Build events: what happens during a build, as values for the console, the report, the profile and the event log.

Times are seconds since the build began, by a monotonic clock.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from mlcbuild.engine.action import JsonValue
from mlcbuild.engine.executor import FileEntry


class ActionStatus(enum.Enum):
    """How an action ended. The values are those of the build report."""

    UP_TO_DATE = "up_to_date"  # same key as in this workspace's last build
    DISK_HIT = "disk_hit"
    REMOTE_HIT = "remote_hit"
    EXECUTED_LOCAL = "executed_local"
    EXECUTED_RAY = "executed_ray"
    NOT_CACHED = "not_cached"  # it would have to run, in a build that takes results from caches alone
    FAILED = "failed"
    SKIPPED = "skipped"  # something it needs failed, or the build stopped before it ran


class Cause(enum.Enum):
    """Why an action ran instead of taking a result from a cache."""

    FIRST = "first build"  # it was never built in this workspace, and no cache had a result
    CHANGED = "changed"  # its inputs, its command or its code
    NO_RESULT = "no result"  # nothing has changed since it was built here, but no cache has the result
    OUTPUTS_GONE = "outputs gone"  # it had a result, whose blobs have gone
    REMADE = "remade"  # its result is known, and its files are made again on each machine that needs them
    ASKED = "asked"  # the user asked for it
    NEVER_CACHED = "never cached"  # a measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStarted:
    invocation: str  # a UUID
    targets: tuple[str, ...]  # the labels that were asked for
    time: float = 0.0  # since the build began, in seconds
    jobs: int = 0  # how many actions run at once at most
    digest_function: str = ""  # of all digests and keys: `blake3`, `sha256`
    axes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of targets that a matrix made, by label


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionsAdded:
    """`count` more actions are needed, `total` so far. `discovered_by` is the action that led to them, or "".

    `identifiers` names them, so that a log that was cut short tells what was left to do.
    """

    count: int  # how many more
    total: int  # how many so far
    discovered_by: str = ""  # the action that announced them
    time: float = 0.0  # since the build began, in seconds
    identifiers: tuple[str, ...] = ()  # their names for programs


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionStarted:
    """An action began to run on an executor. A cache hit starts nothing.

    `title` is its name for people, "" where that is the identifier. `shared_by` are actions of the same key that wait
    for this run, as far as they are known.
    """

    identifier: str  # its name for programs, which begins with its target
    mnemonic: str  # its kind: `CompileKernel`
    executor: str  # `local` or `ray`
    time: float  # since the build began, in seconds
    title: str = ""  # its name for people
    shared_by: tuple[str, ...] = ()  # equal actions of other targets


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFinished:
    """An action has ended. Where it ran, `start` says when it began and `worker` where.

    `title` is its name for people, "" where that is the identifier; `details` say what it does, for programs. Actions
    of the same key end together: `shared_by` names those that took the result or the failure of this one, and
    `shared_with` is this one for each of them.
    """

    identifier: str  # its name for programs, which begins with its target
    mnemonic: str  # its kind: `CompileKernel`
    owner: str  # the label of its target
    status: ActionStatus  # how it ended
    start: float  # when it began; `time` where nothing ran
    time: float  # when it ended
    key: str = ""  # the hash of its REAPI Action; "" where it never had one
    worker: str = ""  # the worker or task that ran it; "" where nothing ran
    message: str = ""  # why it failed or was skipped
    log: bytes = b""  # what it printed
    exit_code: int = 0  # of a tool
    environment: bool = False  # it failed because of a machine, and not of its inputs
    executor: str = ""  # "" where nothing ran
    node: str = ""  # the machine, where it is not this one
    queued_seconds: float = 0.0  # between its submission to the executor and its start
    input_seconds: float = 0.0  # of the run, for laying out and fetching inputs
    output_seconds: float = 0.0  # of the run, for storing and sending outputs
    peak_bytes: int = 0  # the largest resident set; 0 where it was not measured
    cause: Cause | None = None  # why it ran, or would have to; None where a result was found
    previous_key: str = ""  # of the last build here, where that differs from `key`
    title: str = ""  # its name for people
    details: Mapping[str, JsonValue] = field(default_factory=dict)  # of a kernel: what it computes, and where
    shared_with: str = ""  # the equal action whose result or failure it took
    shared_by: tuple[str, ...] = ()  # equal actions that took its result or failure
    output_files: tuple[FileEntry, ...] = ()  # of its result, or of a test that failed, by path in it
    announced_by: str = ""  # the action whose manifest names it; "" where a rule declares it

    @property
    def seconds(self) -> float:
        """How long it ran, with its inputs and outputs; 0 where nothing ran."""
        return self.time - self.start if self.executor else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that the user should know and that fails nothing: a cache that failed, a worker that was lost."""

    message: str  # one or more lines
    time: float  # since the build began, in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFinished:
    """A requested target is built, or failed. `outputs` are paths relative to the workspace.

    `blocked_by` is the action whose failure is the cause; "" where the target itself could not be placed. `ran`,
    `cached` and `seconds` are those of the target's own actions until now: how many ran, how many had a cached result,
    and how long they ran together.
    """

    label: str  # of the target
    success: bool  # whether its outputs are in place
    outputs: tuple[str, ...] = ()  # paths from the workspace
    error: str = ""  # why it was not built
    time: float = 0.0  # since the build began, in seconds
    blocked_by: str = ""  # the action that failed
    output_files: tuple[FileEntry, ...] = ()  # `outputs` with their digests, in the same order
    ran: int = 0  # how many of its actions ran
    cached: int = 0  # how many had a cached result
    seconds: float = 0.0  # the sum of the runs of its actions


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSkipped:
    """A target that a wildcard matches and that cannot be built for its platform. It comes before the build starts.

    `axes` are those of its matrix, as in BuildStarted.
    """

    label: str  # of the target
    reason: str  # why its platform and it do not go together
    axes: Mapping[str, str] = field(default_factory=dict)  # its cell of the matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """One action on the critical path, with the seconds it took. `title` as in ActionFinished."""

    identifier: str  # as in `action_finished`
    mnemonic: str  # as in `action_finished`
    seconds: float  # how long it ran
    title: str = ""  # its name for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack:
    """How much longer an action could have run without being on the critical path."""

    identifier: str  # as in `action_finished`
    seconds: float  # of slack


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFinished:
    success: bool  # whether every target is built
    interrupted: bool  # whether the user ended it
    wall_seconds: float  # of the build, without loading and analysis
    counts: tuple[tuple[ActionStatus, int], ...]  # every status, in declaration order
    critical_path: tuple[PathStep, ...] = ()  # the longest chain of actions that ran
    slacks: tuple[Slack, ...] = ()  # of all that ran and is not on the critical path
    bytes_downloaded: int = 0  # from the remote cache
    bytes_uploaded: int = 0  # to the remote cache
    time: float = field(default=0.0)  # since the build began, in seconds


BuildEvent = (
    TargetSkipped
    | BuildStarted
    | ActionsAdded
    | ActionStarted
    | ActionFinished
    | Notice
    | TargetFinished
    | BuildFinished
)
