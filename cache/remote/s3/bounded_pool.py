"""Parallel requests with answers in order. The number of pending answers is limited, so memory is bounded."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Generic, TypeVar

from mlcbuild.cache.remote.s3.errors import S3Error
from mlcbuild.cache.remote.s3.operation import Operation
from mlcbuild.cache.remote.transport import ErrorKind

Item = TypeVar("Item")
Answer = TypeVar("Answer")
_HELD_A_THREAD = 2


class BoundedPool:
    """The threads of one transport, and a limit on running requests and pending answers of all callers together."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.slots = threading.BoundedSemaphore(threads * _HELD_A_THREAD)
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def submit(self, function: Callable[[Item], Answer], item: Item) -> Future[Answer]:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="mlcbuild s3")
            return self._pool.submit(function, item)

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)


class OrderedMap(Generic[Item, Answer]):
    """Iterates over the answers of `function` for each item, in order.

    At the end of its block no request is running any more. An error cancels the operation with its running requests.
    """

    def __init__(
        self, pool: BoundedPool, operation: Operation, function: Callable[[Item], Answer], items: Iterable[Item]
    ) -> None:
        self._pool = pool
        self._operation = operation
        self._function = function
        self._items = iter(items)
        self._pending: collections.deque[Future[Answer]] = collections.deque()
        self._is_dry = False

    def __enter__(self) -> OrderedMap[Item, Answer]:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._operation.cancel()
        for each in self._pending:
            each.cancel()
        wait(self._pending)
        for _each in self._pending:
            self._pool.slots.release()
        self._pending.clear()

    def __iter__(self) -> Iterator[Answer]:
        while True:
            self._fill()
            if not self._pending:
                return
            answer = self._pending[0].result()
            yield answer
            del answer
            self._pending.popleft()
            self._pool.slots.release()

    def _fill(self) -> None:
        """Start as many requests as there are slots. Wait for a slot only if no request is running.

        So a caller that waits holds no slot, and the callers that hold slots can go on.
        """
        while not self._is_dry and len(self._pending) < self._pool.threads:
            if not self._pool.slots.acquire(blocking=False):
                if self._pending:
                    return
                if not self._pool.slots.acquire(timeout=self._operation.remaining):
                    raise S3Error("other transfers took all the time", code="Deadline", kind=ErrorKind.TRANSIENT)
            try:
                item = next(self._items)
            except StopIteration:
                self._is_dry = True
                self._pool.slots.release()
                return
            self._pending.append(self._pool.submit(self._function, item))
