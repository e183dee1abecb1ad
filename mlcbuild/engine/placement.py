"""On which of several executors an action runs: a choice by values, without waiting for anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from mlcbuild.engine.action import Action, CachePolicy, ExecutionRequirements

LOCAL = "local"
# A trip may cost a tenth of what is done at its end. Below that an action stays here, where all that it needs is.
_WORTH_TRIPS = 10


class Place(Protocol):
    """What of an executor decides; `mlcbuild.engine.executor.Executor` is one."""

    @property
    def name(self) -> str: ...

    @property
    def slots(self) -> int: ...

    @property
    def trip_seconds(self) -> float: ...

    def refusal(self, requirements: ExecutionRequirements) -> str: ...


AnyPlace = TypeVar("AnyPlace", bound=Place)


class NoExecutor(Exception):  # noqa: N818
    """No executor can ever run an action. The message says why, an executor a line."""


def is_bound_to_this_machine(action: Action) -> bool:
    """Whether what it makes is true here only, or it needs what the user has here: files, network, credentials."""
    return action.cache is CachePolicy.LOCAL or action.requirements.network


def place(action: Action, executors: Sequence[AnyPlace], used: Mapping[str, int], *, run_seconds: float) -> AnyPlace:
    """The executor for an action that takes `run_seconds`; `used` counts by name what each has been given.

    The order of `executors` is that of preference. Raises NoExecutor, and InfrastructureError where one cannot start.
    """
    stays_here = is_bound_to_this_machine(action) and any(executor.name == LOCAL for executor in executors)
    candidates: list[AnyPlace] = []
    refusals: list[str] = []
    for executor in executors:
        if stays_here and executor.name != LOCAL:
            continue
        reason = executor.refusal(action.requirements)
        if reason:
            refusals.append(f"{executor.name}: {reason}")
        else:
            candidates.append(executor)
    if not candidates:
        raise NoExecutor("\n  ".join((f"{action.identifier} can run nowhere", *refusals)))
    near = [executor for executor in candidates if run_seconds >= _WORTH_TRIPS * executor.trip_seconds]
    candidates = near or [min(candidates, key=lambda executor: executor.trip_seconds)]
    loads = {executor.name: used.get(executor.name, 0) / max(1, executor.slots) for executor in candidates}
    free = (executor for executor in candidates if loads[executor.name] < 1)
    return next(free, min(candidates, key=lambda executor: loads[executor.name]))
