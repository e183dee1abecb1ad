"""The scheduler's events: everything that can happen to a build, as values.

An event about an action that does not wait for it any longer (a late answer, a second one) is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import Action, Artifact, Discovery
from mlcbuild.engine.executor import ExecutionOutcome, FileEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedTarget:
    """A target that the user asked for. `directory` is its own directory, relative to the workspace.

    `outputs` are pairs of a path below `directory` and the artifact that is placed there. The path of a directory or of
    a discovered group ends in "/", or is "" where its files lie right in `directory`. `builds` are artifacts that are
    made and not placed: what a test needs, where it does not run. `axes` says which cell of a matrix the target is, as
    text by axis; it decides nothing.
    """

    label: str
    directory: str
    outputs: tuple[tuple[str, Artifact], ...]
    builds: tuple[Artifact, ...] = ()
    axes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        places = [place for place, _ in self.outputs if place]
        if len(set(places)) != len(places):
            raise ValueError(f"{self.label}: two outputs have one path: {sorted(places)}")
        for place in places:
            parts = place.removesuffix("/").split("/")
            if place.startswith("/") or any(part in ("", ".", "..") for part in parts):
                raise ValueError(f"{self.label}: not a relative path below the target's directory: {place!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionsDeclared:
    """Rules declared these actions. Equal ones merge. Two different ones with one identifier raise InternalError."""

    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetsRequested:
    """The user asked for these targets. Only what they need is looked up or run. A label counts once."""

    targets: tuple[RequestedTarget, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsAdded:
    """There are `jobs` slots now, more than before."""

    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDigested:
    """The digest of a source file is known."""

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
    """No cache has a result for `key`."""

    identifier: str
    key: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """A run has ended."""

    outcome: ExecutionOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionsDiscovered:
    """The manifest of `identifier` was read. It announces `discovery`."""

    identifier: str
    discovery: Discovery


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryFailed:
    """The manifest of `identifier` cannot be read; `message` says why."""

    identifier: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupSlow:
    """A lookup takes so long that the action should run meanwhile. ResultFound or ResultNotFound still come."""

    identifier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDelivered:
    """The outputs of a target are in place."""

    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFailed:
    """The outputs of a target cannot be put in place; `message` says why."""

    label: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobsMissing:
    """These blobs have gone from the store. `needed_by` is the action or the label of the target that needs them."""

    needed_by: str
    digests: tuple[Digest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorLost:
    """These actions ran on an executor that disappeared without an outcome."""

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
