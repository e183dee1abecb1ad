"""A pool of threads for transfers. The caller works too, so waiting for the pool cannot deadlock."""

from __future__ import annotations

import collections
import queue
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


class ThreadPool:
    """Daemon threads, started on demand. A transfer that hangs does not keep the process from ending."""

    def __init__(self, most: int, name: str) -> None:
        if most < 1:
            raise ValueError(f"at least one thread is needed: {most}")
        self._most = most
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def run(self, job: Callable[[], object]) -> None:
        """Run a job, which must not raise, when a thread is free."""
        self._jobs.put(job)
        with self._lock:
            if len(self._threads) < self._most:
                name = f"{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._run_jobs, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def for_each(self, function: Callable[[Item], object], items: Iterable[Item]) -> None:
        """Call `function` with every item in parallel, in the caller's thread too.

        After an exception no further items are begun. It is raised when no call is running any more.
        """
        together = _SharedItems(function, items)
        for _ in range(min(len(together.items) - 1, self._most)):
            self.run(together.work)
        together.work()
        together.wait()

    def close(self) -> None:
        """Let the threads end after the current jobs. Does not wait."""
        with self._lock:
            for _ in self._threads:
                self._jobs.put(None)
            self._threads = []

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class _SharedItems:
    """Items that several threads process."""

    def __init__(self, function: Callable[[Item], object], items: Iterable[Item]) -> None:
        self.items: collections.deque[Item] = collections.deque(items)
        self._function = function
        self._changed = threading.Condition()
        self._running = 0
        self._error: BaseException | None = None

    def work(self) -> None:
        while True:
            with self._changed:
                if not self.items:
                    return
                item = self.items.popleft()
                self._running += 1
            error: BaseException | None = None
            try:
                self._function(item)
            except BaseException as raised:
                error = raised
            with self._changed:
                self._running -= 1
                if error is not None:
                    self.items.clear()
                    self._error = self._error or error
                self._changed.notify_all()

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._running and not self.items)
            if self._error is not None:
                raise self._error
