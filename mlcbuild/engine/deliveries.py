"""Targets on their way to where the user looks for them."""

from __future__ import annotations

import threading

from mlcbuild.engine.background import Background
from mlcbuild.engine.build_result import TargetResult
from mlcbuild.engine.input_fetcher import InputFetcher
from mlcbuild.engine.instructions import Deliver, ReportTarget
from mlcbuild.engine.outputs import OutputPlacer
from mlcbuild.engine.scheduler_events import BlobsMissing, DeliveryFailed, SchedulerEvent, TargetDelivered
from mlcbuild.errors import InfrastructureError, MlcbuildError

_SMALL_BYTES = 256 << 10  # of a target's files together


class Deliveries:
    """Used in the thread of the build alone, but for the jobs that it gives to `network`."""

    def __init__(self, *, placer: OutputPlacer, fetcher: InputFetcher, network: Background) -> None:
        self._placer = placer
        self._fetcher = fetcher
        self._network = network
        self._placing = threading.Lock()
        self._begun: dict[str, Deliver] = {}
        self._machine_faults: set[str] = set()  # labels that this machine could not place

    def labels(self) -> tuple[str, ...]:
        """Targets whose delivery has begun and not ended."""
        return tuple(self._begun)

    def begin(self, told: Deliver) -> list[SchedulerEvent]:
        self._begun[told.label] = told
        # Whatever is being placed meanwhile is in another target's directory: this need not wait for it.
        if self._placer.is_current(told.directory, told.files):
            return [TargetDelivered(label=told.label)]
        # What takes less than to be handed to another thread is done here, unless something large is being placed.
        is_small = sum(entry.digest.size_bytes for entry in told.files) <= _SMALL_BYTES
        if is_small and not self._fetcher.lacking(told.files) and self._placing.acquire(blocking=False):
            try:
                return [self._put(told)]
            finally:
                self._placing.release()
        self._network.run(lambda: [self._bring(told)])
        return []

    def end(self, told: ReportTarget) -> TargetResult:
        delivered = self._begun.pop(told.label, None)
        outputs: tuple[str, ...] = ()
        if told.success and delivered is not None:
            outputs = tuple(f"{delivered.directory}/{entry.path}" for entry in delivered.files)
        return TargetResult(
            label=told.label,
            success=told.success,
            outputs=outputs,
            error=told.message,
            environment=not told.success and told.label in self._machine_faults,
        )

    def save(self) -> None:
        """Remember what lies where, once nothing is being placed."""
        with self._placing:
            self._placer.save()

    def _bring(self, told: Deliver) -> SchedulerEvent:
        missing = self._fetcher.lacking(told.files)
        if missing:
            supplied = self._fetcher.provide(missing, told.sources)
            if supplied.problem:
                return self._failed(told, supplied.problem, by_machine=supplied.environment)
            if supplied.missing:
                return BlobsMissing(needed_by=told.label, digests=supplied.missing)
        with self._placing:
            return self._put(told)

    def _put(self, told: Deliver) -> SchedulerEvent:
        """One at a time."""
        try:
            placement = self._placer.place(told.directory, told.files)
        except (MlcbuildError, ValueError) as error:
            return self._failed(told, str(error), by_machine=isinstance(error, InfrastructureError))
        if placement.missing:
            return BlobsMissing(needed_by=told.label, digests=placement.missing)
        return TargetDelivered(label=told.label)

    def _failed(self, told: Deliver, message: str, *, by_machine: bool) -> DeliveryFailed:
        if by_machine:
            self._machine_faults.add(told.label)
        return DeliveryFailed(label=told.label, message=message)
