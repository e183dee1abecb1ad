"""Passes build events on to all listeners of a command."""

from __future__ import annotations

from collections.abc import Callable

from mlcbuild.engine.build_events import BuildEvent

Listener = Callable[[BuildEvent], object]


class Listeners:
    """Passes each event to every listener, in order. A listener that can no longer write is dropped with one note.

    A full disk under an event log, or a closed standard error, must not end a build.
    """

    def __init__(self, *, dropped: Callable[[str], None]) -> None:
        self._listeners: list[tuple[str, Listener]] = []
        self._dropped = dropped

    def add(self, name: str, listener: Listener) -> None:
        """`name` stands for the listener in messages."""
        self._listeners.append((name, listener))

    def __call__(self, event: BuildEvent) -> None:
        for entry in tuple(self._listeners):
            name, listener = entry
            try:
                listener(event)
            except (OSError, ValueError) as error:  # ValueError: the stream is closed
                self._listeners.remove(entry)
                self._note(f"{name} is incomplete: {reason_of(error)}")

    def _note(self, message: str) -> None:
        try:
            self._dropped(message)
        except (OSError, ValueError):
            return


def reason_of(error: Exception) -> str:
    """Why something cannot be written, without the number of the error."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
