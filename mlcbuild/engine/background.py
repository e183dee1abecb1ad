"""A few threads for work that may take long. They run jobs, and put their results into one queue."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable


class Background:
    """Runs jobs in daemon threads, which are started when first needed. A job returns messages for the inbox.

    An exception from a job is put into the inbox as it is. The reader of the inbox decides about it.
    """

    def __init__(self, inbox: queue.SimpleQueue[object], *, threads: int) -> None:
        self._inbox = inbox
        self._jobs: queue.SimpleQueue[Callable[[], Iterable[object]] | None] = queue.SimpleQueue()
        self._most = threads
        self._threads: list[threading.Thread] = []

    def run(self, job: Callable[[], Iterable[object]]) -> None:
        self._jobs.put(job)
        if len(self._threads) < self._most:
            thread = threading.Thread(target=self._work, name=f"background-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self, *, wait: bool) -> None:
        """Let the threads end after the jobs so far. With `wait`, return when they have ended."""
        for _ in self._threads:
            self._jobs.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                for message in job():
                    self._inbox.put(message)
            except Exception as error:
                self._inbox.put(error)
