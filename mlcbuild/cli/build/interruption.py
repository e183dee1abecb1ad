"""Signals that interrupt a build: Ctrl-C, SIGTERM, and a terminal that closes.

Python runs a signal's handler in the main thread, between two of its instructions. If the main thread is in a call that
does not return, as on a network file system whose server is gone, no handler runs. So a thread of its own looks
for signals that nobody takes, and ends the process if an interrupted build does not end by itself.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mlcbuild.cli.exit_codes import ExitCode

_LOOK_SECONDS = 0.5
_GRACE_SECONDS = 10.0  # after the first signal, for actions to be stopped and results to be stored
_SHORT_GRACE_SECONDS = 3.0  # after a second one
_MESSAGE = b"error: interrupted, but something does not answer (a file system?); ended without waiting for it\n"


class SignalWatch:
    """Takes the signals `numbers` that the main thread does not take within a moment, and calls `on_signal`.

    Whoever handles a signal calls `came`. The process ends if `close` is not called within a time after that.
    """

    def __init__(self, numbers: Sequence[int], on_signal: Callable[[], object]) -> None:
        self._numbers = frozenset(numbers)
        self._on_signal = on_signal
        self._deadline = 0.0
        self._is_active = True
        threading.Thread(target=self._look, name="signals", daemon=True).start()

    def came(self) -> None:
        grace = _SHORT_GRACE_SECONDS if self._deadline else _GRACE_SECONDS
        self._deadline = min(self._deadline or float("inf"), time.monotonic() + grace)

    def close(self) -> None:
        self._is_active = False

    def _look(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)  # of this thread alone, which has no handlers
        while self._is_active:
            taken = signal.sigtimedwait(self._numbers, _LOOK_SECONDS)
            if taken is None or taken.si_signo not in self._numbers:
                pass  # On a virtual machine under load it has returned early, with a number that no signal has.
            elif self._is_active:
                self._on_signal()
            else:
                os.kill(os.getpid(), taken.si_signo)  # It is for whoever comes next.
            if self._is_active and self._deadline and time.monotonic() > self._deadline:
                end_at_once()


def end_at_once() -> None:
    """End this process whatever its threads wait for. Servers kill the actions of a client that ended."""
    try:
        os.write(2, _MESSAGE)
    finally:
        os._exit(int(ExitCode.INTERRUPTED))


@contextmanager
def interrupting(interrupt: Callable[[], object]) -> Iterator[None]:
    """Within the block each of these signals calls `interrupt` instead of its usual handler.

    If the block does not end soon after a signal, the process does.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return

    def handle(*_: object) -> None:
        watch.came()
        interrupt()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup
        numbers.append(signal.SIGHUP)
    watch = SignalWatch(numbers, handle)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        watch.close()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def hearing_ctrl_c() -> Iterator[None]:
    """Within the block Ctrl-C ends the process even if the main thread cannot raise KeyboardInterrupt.

    SIGTERM and SIGHUP need no help where they have no handler.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    main_thread = threading.get_ident()

    def pass_on() -> None:
        watch.came()
        signal.pthread_kill(main_thread, signal.SIGINT)

    watch = SignalWatch([signal.SIGINT], pass_on)
    try:
        yield
    finally:
        watch.close()
