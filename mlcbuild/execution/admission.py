"""Places for actions on one machine: how many cpus and GPUs are free. Whoever asks for more than all gets all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What an action takes while it runs. `memory_bytes` 0: not known."""

    cpus: int = 1
    gpus: float = 0.0
    memory_bytes: int = 0


class Room:
    """What is left of `cpus` and `gpus`. Not thread-safe."""

    def __init__(self, *, cpus: int, gpus: float) -> None:
        self._cpus = self._free_cpus = cpus
        self._gpus = self._free_gpus = gpus

    def has_place_for(self, need: Need) -> bool:
        return self._cpus_of(need) <= self._free_cpus and self._gpus_of(need) <= self._free_gpus + _ROUNDING

    def enter(self, need: Need) -> None:
        self._free_cpus -= self._cpus_of(need)
        self._free_gpus -= self._gpus_of(need)

    def leave(self, need: Need) -> None:
        self._free_cpus += self._cpus_of(need)
        self._free_gpus += self._gpus_of(need)

    def _cpus_of(self, need: Need) -> int:
        return min(need.cpus, self._cpus)

    def _gpus_of(self, need: Need) -> float:
        return min(need.gpus, self._gpus)


_ROUNDING = 1e-6  # ten tenths of a GPU are one
