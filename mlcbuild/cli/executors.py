"""The executors of a build, each of which comes into being with the first action that it is asked about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mlcbuild.cache.disk import DiskStore
from mlcbuild.cli.execution_settings import AUTO, ResolvedExecution
from mlcbuild.cli.late_executor import LateExecutor
from mlcbuild.cli.remote_settings import ResolvedRemote
from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.engine.executor import Executor
from mlcbuild.engine.toolchains import Toolchains

_RAY = "ray"
# A round trip of a task costs a few milliseconds, moving its files more: below a tenth of a second nothing is worth it.
_TRIP_SECONDS = 0.01
# How many actions a cluster is given at once: those beyond its size wait there, where an autoscaler sees them.
_IN_FLIGHT = 256


class BoundExecutor(LateExecutor):
    """This machine in a build whose actions run elsewhere: it takes those alone that need what its user has here."""

    def refusal(self, requirements: ExecutionRequirements) -> str:
        if not requirements.network:
            return "actions run on Ray (--executor=ray)"
        return super().refusal(requirements)


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
    say: Callable[[str], object],
) -> Executor:
    """On a cluster, of which nothing is imported or started before the first action. `names` are the toolchains of the
    build's actions.
    """
    slots = jobs or (_IN_FLIGHT if execution.ray_address else 2 * cores)
    falls_back = execution.executor == AUTO
    trip_seconds = _TRIP_SECONDS if falls_back else 0.0

    def make() -> Executor:
        from mlcbuild.execution.ray.executor import RayExecutor
        from mlcbuild.execution.ray.likeness import likeness_of

        def likeness() -> Mapping[str, str]:
            return likeness_of(names, toolchains)

        return RayExecutor(
            store,
            settings=execution.ray_settings(jobs=jobs or cores, remote=remote.configuration if remote else None),
            slots=slots,
            toolchains=names,
            likeness=likeness,
            module_paths=(workspace,),
            falls_back=falls_back,
            trip_seconds=trip_seconds,
            say=say,
        )

    return LateExecutor(name=_RAY, slots=slots, trip_seconds=trip_seconds, make=make)
