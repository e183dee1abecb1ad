"""An executor that is made for the first action, so a build with nothing to run does not import it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import Action
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, Executor, FetchesInputs, ReadsInPlace


class LateExecutor:
    """An `Executor` whose name and size are known; `make` makes it when it is first needed.

    Call it only from the driver's thread.
    """

    def __init__(self, *, name: str, slots: int, make: Callable[[], Executor], trip_seconds: float = 0.0) -> None:
        self.name = name
        self._slots = slots
        self.trip_seconds = trip_seconds
        self._make = make
        self._report: Callable[[ExecutionOutcome], None] | None = None
        self._executor: Executor | None = None

    @property
    def slots(self) -> int:
        return self._slots if self._executor is None else self._executor.slots

    @property
    def reads_in_place(self) -> bool:
        return isinstance(self._executor, ReadsInPlace) and self._executor.reads_in_place

    def start(self, report: Callable[[ExecutionOutcome], None]) -> None:
        self._report = report

    def unmet_requirement(self, action: Action) -> str:
        return self._made().unmet_requirement(action)

    def can_fetch(self, digests: Sequence[Digest]) -> frozenset[Digest]:
        executor = self._executor
        return executor.can_fetch(digests) if isinstance(executor, FetchesInputs) else frozenset()

    def submit(self, request: ExecutionRequest) -> None:
        self._made().submit(request)

    def cancel(self, identifier: str) -> None:
        if self._executor is not None:
            self._executor.cancel(identifier)

    def close(self) -> None:
        if self._executor is not None:
            self._executor.close()

    def _made(self) -> Executor:
        if self._executor is None:
            if self._report is None:
                raise RuntimeError("call start() first")
            self._executor = self._make()
            self._executor.start(self._report)
        return self._executor
