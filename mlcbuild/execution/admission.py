"""The cpus and GPUs that are free on this machine. An action that requests more than all of them gets all."""

from __future__ import annotations

from dataclasses import dataclass

_ROUNDING = 1e-6  # ten tenths of a GPU are one


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """What an action takes while it runs. `memory_bytes` 0: not known."""

    cpus: int = 1
    gpus: float = 0.0
    memory_bytes: int = 0


class FreeResources:
    """What is left of `cpus` and `gpus`. Not thread-safe. Memory is measured instead: see `memory.FreeMemory`."""

    def __init__(self, *, cpus: int, gpus: float) -> None:
        self._cpus = self._free_cpus = cpus
        self._gpus = self._free_gpus = gpus

    def fits(self, request: ResourceRequest) -> bool:
        return self._cpus_of(request) <= self._free_cpus and self._gpus_of(request) <= self._free_gpus + _ROUNDING

    def acquire(self, request: ResourceRequest) -> None:
        self._free_cpus -= self._cpus_of(request)
        self._free_gpus -= self._gpus_of(request)

    def release(self, request: ResourceRequest) -> None:
        self._free_cpus += self._cpus_of(request)
        self._free_gpus += self._gpus_of(request)

    def _cpus_of(self, request: ResourceRequest) -> int:
        return min(request.cpus, self._cpus)

    def _gpus_of(self, request: ResourceRequest) -> float:
        return min(request.gpus, self._gpus)
