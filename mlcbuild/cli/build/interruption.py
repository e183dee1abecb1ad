"""Ctrl-C, SIGTERM and a terminal that closes end a build in good order; a second one does not wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupting(interrupt: Callable[[], object]) -> Iterator[None]:
    """While inside, each of these signals calls `interrupt` instead of what it does otherwise."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to the main thread
        return

    def handle(*_: object) -> None:
        interrupt()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup wants it ignored
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
