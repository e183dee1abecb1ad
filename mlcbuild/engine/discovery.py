"""From a discovering action's manifest to what it announces, or to why that is not known."""

from __future__ import annotations

from collections.abc import Callable

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.store import BlobMissingError
from mlcbuild.engine.instructions import Discover
from mlcbuild.engine.scheduler_events import ActionsDiscovered, BlobsMissing, DiscoveryFailed
from mlcbuild.errors import MlcbuildError


def discover(told: Discover, read: Callable[[Digest], bytes]) -> ActionsDiscovered | BlobsMissing | DiscoveryFailed:
    """`read` gets a manifest that did not travel in its result, and raises BlobMissingError where it has gone."""
    action = told.action
    assert action.discoverer is not None
    try:
        manifest = told.inline if told.inline is not None else read(told.manifest)
        discovery = action.discoverer(discovering=action.identifier, manifest=manifest)
    except BlobMissingError:
        return BlobsMissing(needed_by=action.identifier, digests=(told.manifest,))
    except (ValueError, MlcbuildError) as error:
        return DiscoveryFailed(identifier=action.identifier, message=f"its manifest cannot be read: {error}")
    return ActionsDiscovered(identifier=action.identifier, discovery=discovery)
