"""What the scheduler is told: everything that can happen to a build, as values.

A event about an action that no longer waits for it (a late answer, a second one) is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import Action, Artifact, Discovery
from mlcbuild.engine.executor import ExecutionOutcome, FileEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedTarget:
    """Something the user asked for: a label, and where each artifact lies below the target's own directory.

    A place whose artifact is a directory or a discovered group ends in "/", or is "": it lies right in `directory`,
    which is the target's own, relative to the workspace.
    """

    label: str
    directory: str
    outputs: tuple[tuple[str, Artifact], ...]

    def __post_init__(self) -> None:
        places = [place for place, _ in self.outputs if place]
        if len(set(places)) != len(places):
            raise ValueError(f"{self.label}: two outputs at one place: {sorted(places)}")
        for place in places:
            parts = place.removesuffix("/").split("/")
            if place.startswith("/") or any(part in ("", ".", "..") for part in parts):
                raise ValueError(f"{self.label}: not a relative path below the target's directory: {place!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionsDeclared:
    """Actions that rules made. Equal ones merge; two different ones of one identifier raise InternalError."""

    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetsRequested:
    """Only what these need is looked up or run. A label asked for twice counts once."""

    targets: tuple[RequestedTarget, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsAdded:
    """There is room for `jobs` at once now, more than before."""

    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDigested:
    path: str
    digest: Digest
    is_executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceUnavailable:
    """A source file is absent or cannot be read; `message` says why, for people."""

    path: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFound:
    """The action cache holds a result for `key`. `manifest` holds the manifest's bytes where they came with it."""

    identifier: str
    key: Digest
    outputs: tuple[FileEntry, ...]
    manifest: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultNotFound:
    identifier: str
    key: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    outcome: ExecutionOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionsDiscovered:
    """What the manifest of `identifier` announces."""

    identifier: str
    discovery: Discovery


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryFailed:
    identifier: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupSlow:
    """The answer takes so long that the action may as well run; ResultFound or ResultNotFound still come."""

    identifier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDelivered:
    """The outputs of a target are where the user looks for them."""

    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFailed:
    label: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobsMissing:
    """Digests are known but their bytes have gone: what `needed_by` (an action or a label) asked for is made again."""

    needed_by: str
    digests: tuple[Digest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorLost:
    """These actions ran on an executor that went away without an outcome."""

    identifiers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """The user wants the build to stop."""


SchedulerEvent = (
    ActionsDeclared
    | TargetsRequested
    | JobsAdded
    | SourceDigested
    | SourceUnavailable
    | ResultFound
    | ResultNotFound
    | LookupSlow
    | Executed
    | ActionsDiscovered
    | DiscoveryFailed
    | TargetDelivered
    | DeliveryFailed
    | BlobsMissing
    | ExecutorLost
    | Cancelled
)
