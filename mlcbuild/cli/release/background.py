"""One call in a thread, so that the command can show progress, and Ctrl-C ends it at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Starts `call`. The thread does not outlive the process."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._results: list[T] = []
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, after at most that time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> T:
        """Its answer once it has ended; raises what it raised."""
        for error in self._errors:
            raise error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:
            self._errors.append(error)
