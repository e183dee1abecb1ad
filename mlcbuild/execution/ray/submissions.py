"""The actions that were given to a cluster, each with exactly one outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, OutcomeKind
from mlcbuild.execution.ray.execute_call import CodeFiles


@dataclass(kw_only=True, eq=False)
class Submission:
    """An action that was given to the cluster."""

    request: ExecutionRequest
    submitted: float
    code: CodeFiles = ()
    number: int = 0  # of its pending call; 0: none
    rounds: int = 0  # how often a node said that it lacks a blob
    is_waiting: bool = False  # for the cluster
    is_cancelled: bool = False
    is_done: bool = False
    timer: threading.Timer | None = field(default=None)


class Submissions:
    """For any thread. `report` is called once for each submission."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_identifier: dict[str, Submission] = {}
        self._report: Callable[[ExecutionOutcome], None] | None = None
        self._closed = False

    def start(self, report: Callable[[ExecutionOutcome], None]) -> None:
        self._report = report

    def add(self, request: ExecutionRequest, *, is_waiting: bool) -> Submission:
        """Raises RuntimeError before `start` and after `close`."""
        if self._report is None:
            raise RuntimeError("start() comes before submit()")
        submission = Submission(request=request, submitted=time.monotonic(), is_waiting=is_waiting)
        with self._lock:
            if self._closed:
                raise RuntimeError(f"{request.identifier} was submitted to a closed executor")
            self._by_identifier[request.identifier] = submission
        return submission

    def all(self) -> list[Submission]:
        with self._lock:
            return list(self._by_identifier.values())

    def take_waiting(self) -> list[Submission]:
        """Those that waited for the cluster, in order of submission. They no longer wait."""
        with self._lock:
            waiting = [each for each in self._by_identifier.values() if each.is_waiting]
            for each in waiting:
                each.is_waiting = False
        return waiting

    def begin_call(self, submission: Submission, number: int) -> bool:
        """Note the number of the call that is about to be made. False: it is cancelled, and must not be called."""
        with self._lock:
            submission.number = 0 if submission.is_cancelled else number
            return not submission.is_cancelled

    def cancel(self, identifier: str, timer: Callable[[Submission], threading.Timer]) -> Submission | None:
        """Mark a submission as cancelled and start its timer. None: it has ended, or was cancelled before."""
        with self._lock:
            submission = self._by_identifier.get(identifier)
            if submission is None or submission.is_cancelled:
                return None
            submission.is_cancelled = True
            submission.timer = timer(submission)
            submission.timer.daemon = True
            submission.timer.start()
            return submission

    def close(self) -> list[Submission]:
        """Accept no more, and mark all as cancelled. Returns them."""
        with self._lock:
            self._closed = True
            submissions = list(self._by_identifier.values())
        for submission in submissions:
            submission.is_cancelled = True
        return submissions

    def fail(self, submission: Submission, kind: OutcomeKind, message: str, *, peak_bytes: int = 0) -> None:
        self.finish(
            submission,
            ExecutionOutcome(
                identifier=submission.request.identifier,
                kind=kind,
                message=message,
                run_seconds=time.monotonic() - submission.submitted,
                peak_bytes=peak_bytes,
            ),
        )

    def finish(self, submission: Submission, outcome: ExecutionOutcome) -> None:
        """Report an outcome. Does nothing if one was reported before."""
        with self._lock:
            if submission.is_done:
                return
            submission.is_done = True
            self._by_identifier.pop(submission.request.identifier, None)
            if submission.timer is not None:
                submission.timer.cancel()
        if submission.is_cancelled and outcome.kind is not OutcomeKind.CANCELLED:
            outcome = ExecutionOutcome(identifier=outcome.identifier, kind=OutcomeKind.CANCELLED)
        if not outcome.queued_seconds:
            waited = time.monotonic() - submission.submitted - outcome.run_seconds
            outcome = replace(outcome, queued_seconds=max(0.0, waited))
        assert self._report is not None
        self._report(outcome)
