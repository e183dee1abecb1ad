"""Reads the manifest of a discovering action."""

from __future__ import annotations

from collections.abc import Callable

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.store import BlobMissingError
from mlcbuild.engine.instructions import Discover
from mlcbuild.engine.scheduler_events import ActionsDiscovered, BlobsMissing, DiscoveryFailed
from mlcbuild.errors import MlcbuildError


def discover(
    instruction: Discover, read: Callable[[Digest], bytes]
) -> ActionsDiscovered | BlobsMissing | DiscoveryFailed:
    """The event that answers the instruction. `read` reads a manifest that its result does not contain.

    `read` raises BlobMissingError where the manifest has gone from the store.
    """
    action = instruction.action
    assert action.discoverer is not None
    try:
        manifest = instruction.inline if instruction.inline is not None else read(instruction.manifest)
        discovery = action.discoverer(discovering=action.identifier, manifest=manifest)
    except BlobMissingError:
        return BlobsMissing(needed_by=action.identifier, digests=(instruction.manifest,))
    except (ValueError, MlcbuildError) as error:
        return DiscoveryFailed(identifier=action.identifier, message=f"its manifest cannot be read: {error}")
    return ActionsDiscovered(identifier=action.identifier, discovery=discovery)
