"""Chooses the executor of an action, by values alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from mlcbuild.engine.action import Action, CachePolicy

LOCAL = "local"
# A trip may cost a tenth of the work that it is for. Shorter actions stay here, where their inputs are.
_WORTH_TRIPS = 10


class Candidate(Protocol):
    """What the choice depends on. `mlcbuild.engine.executor.Executor` is one."""

    @property
    def name(self) -> str: ...

    @property
    def slots(self) -> int: ...

    @property
    def trip_seconds(self) -> float: ...

    def unmet_requirement(self, action: Action) -> str: ...


AnyCandidate = TypeVar("AnyCandidate", bound=Candidate)


class NoExecutor(Exception):  # noqa: N818
    """No executor can ever run an action. The message says why, with one line for each executor."""


def is_bound_to_this_machine(action: Action) -> bool:
    """Whether its result is true of this machine only or made again here, or it needs the user's own files, network or
    credentials."""
    return action.cache in (CachePolicy.LOCAL, CachePolicy.REMADE) or action.requirements.network


def place(
    action: Action, executors: Sequence[AnyCandidate], used: Mapping[str, int], *, run_seconds: float
) -> AnyCandidate:
    """The executor for an action that takes about `run_seconds`.

    `executors` are in order of preference; `used` says by name how many actions each has now. Raises NoExecutor, and
    InfrastructureError where an executor cannot start.
    """
    stays_here = is_bound_to_this_machine(action) and any(executor.name == LOCAL for executor in executors)
    candidates: list[AnyCandidate] = []
    unmet: list[str] = []
    for executor in executors:
        if stays_here and executor.name != LOCAL:
            continue
        reason = executor.unmet_requirement(action)
        if reason:
            unmet.append(f"{executor.name}: {reason}")
        else:
            candidates.append(executor)
    if not candidates:
        raise NoExecutor("\n  ".join((f"no executor can run {action.identifier}", *unmet)))
    near = [executor for executor in candidates if run_seconds >= _WORTH_TRIPS * executor.trip_seconds]
    candidates = near or [min(candidates, key=lambda executor: executor.trip_seconds)]
    loads = {executor.name: used.get(executor.name, 0) / max(1, executor.slots) for executor in candidates}
    free = (executor for executor in candidates if loads[executor.name] < 1)
    return next(free, min(candidates, key=lambda executor: loads[executor.name]))
