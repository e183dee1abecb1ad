"""An action on its way through the local executor."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, FileEntry
from mlcbuild.execution.admission import ResourceRequest
from mlcbuild.execution.diagnosis import Diagnosis
from mlcbuild.execution.fork_client import ForkedProcess


@dataclass(kw_only=True, eq=False)
class LocalTask:
    """An action that waits or runs: when it came, began and had what it needs, and its process."""

    request: ExecutionRequest
    submitted: float
    started: float = 0.0
    directory: Path | None = None
    process: ForkedProcess | None = None
    cancelled: bool = field(default=False)
    laid_out: float = 0.0  # when its inputs were in its directory
    ended: float = 0.0  # when its process had ended
    peak_bytes: int = 0
    compiled: tuple[str, ...] = ()  # sources that it had to compile

    def outcome(
        self,
        diagnosis: Diagnosis,
        *,
        outputs: tuple[FileEntry, ...] = (),
        log: bytes = b"",
        missing: tuple[Digest, ...] = (),
    ) -> ExecutionOutcome:
        now = time.monotonic()
        started = self.started or now
        return ExecutionOutcome(
            identifier=self.request.identifier,
            kind=diagnosis.kind,
            outputs=outputs,
            message=diagnosis.message,
            log=log,
            exit_code=diagnosis.exit_code,
            timed_out=diagnosis.timed_out,
            missing=missing,
            worker="local",
            queued_seconds=started - self.submitted,
            input_seconds=max(0.0, self.laid_out - started),
            run_seconds=now - started,
            output_seconds=now - self.ended if self.ended else 0.0,
            peak_bytes=self.peak_bytes,
        )

    @property
    def resources(self) -> ResourceRequest:
        asked = self.request.requirements
        memory_bytes = asked.memory_bytes or self.request.expected_bytes
        return ResourceRequest(cpus=asked.cpus, gpus=asked.gpus, memory_bytes=memory_bytes)

    @property
    def unused_bytes(self) -> int:
        """The part of its memory request that its process does not hold yet."""
        return max(0, self.resources.memory_bytes - (self.process.resident_bytes if self.process else 0))
