"""One listener for the engine out of those that the command line asked for."""

from __future__ import annotations

from collections.abc import Callable

from mlcbuild.engine.build_events import BuildEvent

Listener = Callable[[BuildEvent], object]


class Listeners:
    """Hands each event to every listener, in order. One that cannot write any more is dropped, and told once.

    A full disk under an event log, or a reader of standard error that has left, is no reason to end a build.
    """

    def __init__(self, *, dropped: Callable[[str], None]) -> None:
        self._listeners: list[tuple[str, Listener]] = []
        self._dropped = dropped

    def add(self, name: str, listener: Listener) -> None:
        """`name` is what a message calls it."""
        self._listeners.append((name, listener))

    def __call__(self, event: BuildEvent) -> None:
        for entry in tuple(self._listeners):
            name, listener = entry
            try:
                listener(event)
            except (OSError, ValueError) as error:  # ValueError: a stream that was closed
                self._listeners.remove(entry)
                self._tell(f"{name} ends here: {error}")

    def _tell(self, message: str) -> None:
        try:
            self._dropped(message)
        except (OSError, ValueError):
            return
