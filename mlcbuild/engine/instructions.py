"""The scheduler's instructions: everything that a driver has to do, as values. They are carried out in order."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import Action
from mlcbuild.engine.executor import FileEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestSources:
    """Digest source files. Answer with SourceDigested or SourceUnavailable for each path."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceWanted:
    """Further actions are needed, `total` in all so far; `discovered_by` names the action that led to them."""

    identifiers: tuple[str, ...]
    total: int
    discovered_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """Look up a result. Answer with ResultFound or ResultNotFound."""

    action: Action
    key: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute:
    """Run the action on `inputs`, sorted by path. `sources` are the workspace paths among them. Answer with Executed.

    `memory_bytes` is more than the action asks for, because that was too little before; 0 stands for what it asks for.
    `shared_by` are the actions of the same key that wait for this run, as far as they are known.
    """

    action: Action
    key: Digest
    inputs: tuple[FileEntry, ...]
    sources: tuple[str, ...]
    memory_bytes: int = 0
    shared_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Write the result, whose blobs are in the store, into the caches, over what they have for `key`. No answer."""

    action: Action
    key: Digest
    outputs: tuple[FileEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Discover:
    """Read the manifest. Answer with ActionsDiscovered, DiscoveryFailed or BlobsMissing.

    `inline` are the bytes of the manifest, where they came with the result.
    """

    action: Action
    manifest: Digest
    inline: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """Put files, sorted by path, into the target's directory. `sources` are the workspace paths among them.

    Answer with TargetDelivered, DeliveryFailed or BlobsMissing.
    """

    label: str
    directory: str
    files: tuple[FileEntry, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Stop a running action. Answer with Executed all the same."""

    identifier: str


class Ending(enum.Enum):
    """How an action ended."""

    FOUND = "found"  # in the action cache
    SHARED = "shared"  # an action of the same key had the result
    EXECUTED = "executed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportAction:
    """An action has ended. An action that ran again because its blobs had gone ends twice; the later report counts.

    Actions of one key end together. `shared_by` names those that took the result or the failure of this one; for each
    of them `shared_with` names this one.
    """

    action: Action
    key: Digest | None
    ending: Ending
    message: str = ""
    blocked_by: str = ""  # for SKIPPED: the failed action; "" where the build was cancelled
    shared_with: str = ""
    shared_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTarget:
    """A target is delivered, or never will be."""

    label: str
    success: bool
    message: str = ""
    blocked_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Nothing is left to do, and nothing is running. The last instruction."""

    success: bool
    cancelled: bool


Instruction = (
    DigestSources
    | AnnounceWanted
    | LookUp
    | Execute
    | Publish
    | Discover
    | Deliver
    | Cancel
    | ReportAction
    | ReportTarget
    | Finished
)
