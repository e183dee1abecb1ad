"""The executors of a build, each of which comes into being with the first action that it is asked about."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.disk import DiskStore, default_root
from mlcbuild.cli.arguments.options import STATE_DIRECTORY
from mlcbuild.cli.build.late_executor import LateExecutor
from mlcbuild.cli.settings.execution import AUTO, ResolvedExecution
from mlcbuild.cli.settings.remote import ResolvedRemote
from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.engine.executor import Executor
from mlcbuild.engine.remote import RemoteCache
from mlcbuild.toolchains.table import Toolchains

_RAY = "ray"
_FAILED_SANDBOXES = "failed"
_OTHER_SCRATCH = "of the second of two runs"
# A round trip of a task costs a few milliseconds, moving its files more: below a tenth of a second nothing is worth it.
_TRIP_SECONDS = 0.01
# How many actions a cluster is given at once: those beyond its size wait there, where an autoscaler sees them.
_IN_FLIGHT = 256


class BoundExecutor(LateExecutor):
    """This machine in a build whose actions run elsewhere: it takes those alone that need what its user has here."""

    def unmet_requirement(self, requirements: ExecutionRequirements) -> str:
        if not requirements.network:
            return "actions run on Ray (--executor=ray)"
        return super().unmet_requirement(requirements)


def local_executor(
    store: DiskStore,
    *,
    jobs: int,
    scratch: Path,
    workspace: Path,
    execution: ResolvedExecution,
    checks_determinism: bool,
    say: Callable[[str], object],
) -> Executor:
    """On this machine. To check determinism each action runs as ever, and again in other surroundings: other variables,
    and a longer path with a space.
    """
    from mlcbuild.execution.determinism import DeterminismChecker
    from mlcbuild.execution.environment import OTHER
    from mlcbuild.execution.local import LocalExecutor
    from mlcbuild.execution.sandbox import shortcomings

    def make(scratch: Path, variables: Mapping[str, str]) -> LocalExecutor:
        return LocalExecutor(
            store,
            jobs=jobs,
            scratch=scratch,
            module_paths=(workspace,),
            variables=variables,
            sandbox=execution.sandbox,
            hidden=(Path("~").expanduser(), store.root),
            failed_sandboxes=workspace / STATE_DIRECTORY / _FAILED_SANDBOXES if execution.keep_failed else None,
            pool=worker_pool(os.environ) if execution.warm_workers else None,
        )

    if execution.sandbox and (missing := shortcomings()):
        say(f"the sandbox has holes here: {missing}")
    first = make(scratch, {})
    return DeterminismChecker(first, make(scratch / _OTHER_SCRATCH, OTHER), store) if checks_determinism else first


def worker_pool(environment: Mapping[str, str]) -> Path:
    """Where warm workers are found."""
    from mlcbuild.execution.server_pool import pool_directory

    return pool_directory(environment, default_root() / "workers")


def ray_executor(
    store: DiskStore,
    *,
    execution: ResolvedExecution,
    remote: ResolvedRemote | None,
    jobs: int | None,
    cores: int,
    toolchains: Toolchains,
    names: Sequence[str],
    workspace: Path,
    cache: RemoteCache | None,
    say: Callable[[str], object],
) -> Executor:
    """On a cluster, of which nothing is imported or started before the first action. `names` are the toolchains of the
    build's actions; `cache` is the remote as this machine uses it.
    """
    slots = jobs or (_IN_FLIGHT if execution.ray_address else 2 * cores)
    falls_back = execution.executor == AUTO
    trip_seconds = _TRIP_SECONDS if falls_back else 0.0

    def make() -> Executor:
        from mlcbuild.execution.ray.environment_fingerprint import EnvironmentFingerprint, this_environment
        from mlcbuild.execution.ray.executor import RayExecutor

        def environment() -> EnvironmentFingerprint:
            return this_environment(names, toolchains)

        def fetch(digests: Sequence[Digest]) -> tuple[Digest, ...]:
            return cache.fetch(digests, store) if cache is not None else tuple(digests)

        return RayExecutor(
            store,
            settings=execution.ray_settings(jobs=jobs or cores, remote=remote.configuration if remote else None),
            slots=slots,
            toolchains=names,
            environment=environment,
            module_paths=(workspace,),
            falls_back=falls_back,
            trip_seconds=trip_seconds,
            fetch=fetch,
            say=say,
        )

    # How many there can be is known when the cluster is.
    return LateExecutor(name=_RAY, slots=min(slots, 2 * cores), trip_seconds=trip_seconds, make=make)
