"""Records of a remote cache: taken before targets are tuned or built, and sent after that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore, default_root
from mlcbuild.cli.settings.remote import ResolvedRemote
from mlcbuild.cli.workspace.opening import OpenWorkspace
from mlcbuild.rules.analysis import Analysis
from mlcbuild.rules.tuning_actions import TunedLibrary
from mlcbuild.tuning.record import platform_key
from mlcbuild.tuning.remote_log import RemoteLog
from mlcbuild.tuning.store import RecordStore
from mlcbuild.workspace.loader import LoadedWorkspace
from mlcbuild.workspace.target import Target

TUNING = "tuning"


def platform_of(library: TunedLibrary) -> str:
    return platform_key(library.platform.tuned_for)


@contextlib.contextmanager
def remote_logs(
    workspace: OpenWorkspace,
    remote: ResolvedRemote | None,
    disk_cache: Path | None,
    platforms: Sequence[str],
    say: Callable[[str], object],
) -> Iterator[tuple[RemoteLog, ...]]:
    """The logs of platforms in a remote cache; none without one."""
    function = DigestFunction(workspace.settings.digest)
    cache = remote.open(function) if remote else None
    if cache is None:
        yield ()
        return
    store = DiskStore(disk_cache.absolute() if disk_cache else default_root(), function)
    try:
        cache.start(say)
        yield tuple(
            RemoteLog(remote=cache, store=store, of_bytes=function.of_bytes, platform=platform)
            for platform in platforms
        )
        cache.finish()
    finally:
        cache.close()
        store.release()


def refresh_records(
    workspace: OpenWorkspace,
    analysis: Analysis,
    loaded: LoadedWorkspace,
    remote: ResolvedRemote | None,
    disk_cache: Path | None,
    say: Callable[[str], object],
) -> bool:
    """Take the records of tuned targets' platforms from the remote cache; whether there were any that are new here."""
    tuned = {str(label) for label, target in loaded.targets.items() if tuning_of(target) != "off"}
    libraries = [library for library in libraries_of(analysis) if library.owner in tuned]
    platforms = tuple(dict.fromkeys(platform_of(library) for library in libraries))
    if not platforms or remote is None:
        return False
    store = RecordStore.of(disk_cache)
    with remote_logs(workspace, remote, disk_cache, platforms, say) as logs:
        return sum(store.add(log.read()) for log in logs) > 0


def tuning_of(target: Target) -> str:
    """A target's attribute `tuning`; "off" for targets of rules that have none."""
    return target.string(TUNING) if TUNING in target.schema.by_name else "off"


def libraries_of(analysis: Analysis) -> tuple[TunedLibrary, ...]:
    """Those of the requested targets and of all that they need, in their order."""
    found = (TunedLibrary.of(action) for action in analysis.actions)
    return tuple(library for library in found if library is not None)
