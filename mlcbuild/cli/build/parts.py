"""Makes the parts of a build in one workspace: stores, caches, executors and the driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore, default_root
from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.cli.build.executors import BoundExecutor, OnlyExecutor, local_executor, ray_executor
from mlcbuild.cli.build.late_executor import LateExecutor
from mlcbuild.cli.build.targets import check_toolchains, toolchains_of
from mlcbuild.cli.settings.execution import AUTO, ResolvedExecution
from mlcbuild.cli.settings.remote import ResolvedRemote
from mlcbuild.cli.workspace.opening import OpenWorkspace
from mlcbuild.engine.action import Action
from mlcbuild.engine.build_events import BuildEvent
from mlcbuild.engine.driver import Driver
from mlcbuild.engine.executor import Executor
from mlcbuild.engine.implementation import Implementations
from mlcbuild.engine.last_build import STATE_FILE, LastBuild
from mlcbuild.engine.outputs import OutputPlacer
from mlcbuild.engine.workspace_lock import WorkspaceLock
from mlcbuild.toolchains.table import Toolchains

if TYPE_CHECKING:
    from mlcbuild.cache.remote.remote_store import RemoteStore

_SCRATCH = "scratch"
_LOCAL = "local"
_HERE = ResolvedExecution()


@dataclass(frozen=True, kw_only=True)
class BuildParts:
    """The driver of one build, and the parts that a command asks after the build."""

    workspace: OpenWorkspace
    driver: Driver
    store: DiskStore
    placer: OutputPlacer
    digests: FileDigests
    toolchains: Toolchains
    implementations: Implementations
    remote: RemoteStore | None

    def observed(self) -> frozenset[str]:
        """The paths whose state decided what the build did: absolute, or relative to the workspace."""
        return self.toolchains.observed | self.implementations.observed | self.digests.observed


@contextmanager
def build_parts(
    workspace: OpenWorkspace,
    actions: Iterable[Action],
    *,
    jobs: int | None,
    execution: ResolvedExecution = _HERE,
    keep_going: bool,
    check_determinism: bool,
    recache: bool,
    rerun_tests: bool = False,
    from_cache_only: bool = False,
    disk_cache: Path | None,
    remote: ResolvedRemote | None,
    listeners: Sequence[Callable[[BuildEvent], object]],
    say: Callable[[str], object],
    invocation: str = "",
) -> Iterator[BuildParts]:
    """The parts of one build; within the block no other build runs in the workspace. Raises InfrastructureError.

    `invocation` is the build's UUID in everything that is written about it; "" makes one.
    """
    state = workspace.state_directory
    function = DigestFunction(workspace.settings.digest)
    with WorkspaceLock(state, waits=say):
        store = DiskStore(disk_cache.absolute() if disk_cache else default_root(), function)
        toolchains = Toolchains(state / "toolchains.json")
        check_toolchains(toolchains, actions)
        implementations = Implementations(
            state / "implementations.json", distributions=toolchains.distributions, workspace=workspace.root
        )
        cores = len(os.sched_getaffinity(0))
        uses_ray = (
            execution.uses_ray and not check_determinism
        )  # which needs the two environments of the local executor
        here = OnlyExecutor if not uses_ray else LateExecutor if execution.executor == AUTO else BoundExecutor
        local = here(
            name=_LOCAL,
            slots=jobs or cores,
            make=lambda: local_executor(
                store,
                jobs=jobs or cores,
                scratch=state / _SCRATCH,
                workspace=workspace.root,
                execution=execution,
                checks_determinism=check_determinism,
                say=say,
            ),
        )
        cache = remote.open(function) if remote else None
        executors: list[Executor] = [local]
        if uses_ray:
            cluster = ray_executor(
                store,
                execution=execution,
                remote=remote,
                jobs=jobs,
                cores=cores,
                toolchains=toolchains,
                names=sorted(set(toolchains_of(actions))),
                workspace=workspace.root,
                cache=cache,
                say=say,
            )
            executors.insert(0, cluster)
        digests = FileDigests(workspace.root, function, state / "file-digests")
        placer = OutputPlacer(workspace.root, store, state / "outputs")
        driver = Driver(
            workspace=workspace.root,
            store=store,
            toolchains=toolchains,
            implementations=implementations,
            executors=executors,
            digests=digests,
            placer=placer,
            last_build=LastBuild(state / STATE_FILE),
            listeners=listeners,
            invocation=invocation,
            jobs=0 if uses_ray else jobs or cores,
            keep_going=keep_going,
            rerun=check_determinism or recache,
            rerun_tests=rerun_tests,
            from_cache_only=from_cache_only,
            remote=cache,
        )
        try:
            yield BuildParts(
                workspace=workspace,
                driver=driver,
                store=store,
                placer=placer,
                digests=digests,
                toolchains=toolchains,
                implementations=implementations,
                remote=cache,
            )
        finally:
            if cache is not None:
                cache.close()
            toolchains.save()
            implementations.save()
            store.release()
