"""Puts the outputs of targets in place, where users find them."""

from __future__ import annotations

import threading
from dataclasses import replace

from mlcbuild.engine.background import Background
from mlcbuild.engine.build_result import TargetResult
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.input_fetcher import InputFetcher
from mlcbuild.engine.instructions import Deliver, ReportTarget
from mlcbuild.engine.outputs import OutputPlacer
from mlcbuild.engine.scheduler_events import BlobsMissing, DeliveryFailed, SchedulerEvent, TargetDelivered
from mlcbuild.engine.shared_form import remade_among
from mlcbuild.errors import InfrastructureError, MlcbuildError

_SMALL_BYTES = 256 << 10  # of a target's files together


class Deliveries:
    """Used in the thread of the build. What takes long is done in the threads of `network`."""

    def __init__(self, *, placer: OutputPlacer, fetcher: InputFetcher, network: Background) -> None:
        self._placer = placer
        self._fetcher = fetcher
        self._network = network
        self._placing = threading.Lock()
        self._begun: dict[str, Deliver] = {}
        self._environment_failures: set[str] = set()  # labels whose outputs this machine could not place

    def labels(self) -> tuple[str, ...]:
        """The labels of targets whose delivery has begun and not ended."""
        return tuple(self._begun)

    def begin(self, instruction: Deliver) -> list[SchedulerEvent]:
        self._begun[instruction.label] = instruction
        # Another target may be being placed. It has a directory of its own, so this does not have to wait.
        if self._placer.is_current(instruction.directory, instruction.files):
            return [TargetDelivered(label=instruction.label)]
        # A few small files are placed faster here than in another thread, unless that one is placing something large.
        is_small = sum(entry.digest.size_bytes for entry in instruction.files) <= _SMALL_BYTES
        if is_small and not self._fetcher.missing(instruction.files) and self._placing.acquire(blocking=False):
            try:
                return [self._put(instruction)]
            finally:
                self._placing.release()
        self._network.run(lambda: [self._bring(instruction)])
        return []

    def end(self, ended: ReportTarget) -> TargetResult:
        delivered = self._begun.pop(ended.label, None)
        return TargetResult(
            label=ended.label,
            success=ended.success,
            output_files=_placed(delivered) if ended.success and delivered is not None else (),
            error=ended.message,
            environment=not ended.success and ended.label in self._environment_failures,
            blocked_by=ended.blocked_by,
        )

    def save(self) -> None:
        """Wait until nothing is being placed, then write down where outputs lie."""
        with self._placing:
            self._placer.save()

    def _bring(self, instruction: Deliver) -> SchedulerEvent:
        missing = self._fetcher.missing(instruction.files)
        if remade := remade_among(instruction.files, missing):
            return BlobsMissing(needed_by=instruction.label, digests=remade)
        if missing:
            fetched = self._fetcher.fetch(missing, instruction.sources)
            if fetched.error:
                return self._failed(instruction, fetched.error, by_machine=fetched.environment)
            if fetched.missing:
                return BlobsMissing(needed_by=instruction.label, digests=fetched.missing)
        with self._placing:
            return self._put(instruction)

    def _put(self, instruction: Deliver) -> SchedulerEvent:
        """Place the files. One thread at a time does."""
        try:
            placement = self._placer.place(instruction.directory, instruction.files)
        except (MlcbuildError, ValueError) as error:
            return self._failed(instruction, str(error), by_machine=isinstance(error, InfrastructureError))
        if placement.missing:
            return BlobsMissing(needed_by=instruction.label, digests=placement.missing)
        return TargetDelivered(label=instruction.label)

    def _failed(self, instruction: Deliver, message: str, *, by_machine: bool) -> DeliveryFailed:
        if by_machine:
            self._environment_failures.add(instruction.label)
        return DeliveryFailed(label=instruction.label, message=message)


def _placed(delivered: Deliver) -> tuple[FileEntry, ...]:
    """The files of a target by their paths from the workspace."""
    return tuple(replace(entry, path=f"{delivered.directory}/{entry.path}") for entry in delivered.files)
