"""Makes the executors of a build, each when its first action comes."""

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
from mlcbuild.engine.action import Action
from mlcbuild.engine.executor import Executor
from mlcbuild.engine.placement import is_bound_to_this_machine
from mlcbuild.engine.remote import RemoteCache
from mlcbuild.toolchains.table import Toolchains

_RAY = "ray"
_FAILED_SANDBOXES = "failed"
_OTHER_SCRATCH = "of the second of two runs"
# A task's round trip takes a few milliseconds and moving its files longer, so shorter actions are not sent away.
_TRIP_SECONDS = 0.01
_ELSEWHERE = "a node of a Ray cluster may have that: --executor=auto --ray-address=HOST:PORT"


class BoundExecutor(LateExecutor):
    """The local executor of a build whose actions run on Ray. It takes only those that are bound to this machine."""

    def unmet_requirement(self, action: Action) -> str:
        if not is_bound_to_this_machine(action):
            return "actions run on Ray (--executor=ray)"
        return super().unmet_requirement(action)


class OnlyExecutor(LateExecutor):
    """The local executor of a build without a cluster, which says who else may have what this machine lacks."""

    def unmet_requirement(self, action: Action) -> str:
        reason = super().unmet_requirement(action)
        if not reason or is_bound_to_this_machine(action):
            return reason
        return f"{reason}\n  {_ELSEWHERE}"


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
    """Runs actions on this machine. To check determinism it runs each action twice, the second time with other
    variables and in a longer path with a space.
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
            say=say,
        )

    if execution.sandbox and (missing := shortcomings()):
        say(f"the sandbox is incomplete on this machine: {missing}")
    first = make(scratch, {})
    return DeterminismChecker(first, make(scratch / _OTHER_SCRATCH, OTHER), store) if checks_determinism else first


def worker_pool(environment: Mapping[str, str]) -> Path:
    """The folder through which builds find warm workers."""
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
    """Runs actions on a Ray cluster. Ray is imported and the cluster started for the first action.

    `names` are the toolchains of the build's actions; `cache` is this machine's client of the remote cache.
    """
    slots = jobs or (None if execution.ray_address else 2 * cores)
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

    # The executor knows the real number of slots once the cluster is known.
    return LateExecutor(name=_RAY, slots=min(slots or 2 * cores, 2 * cores), trip_seconds=trip_seconds, make=make)
