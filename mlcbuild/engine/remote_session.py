"""The remote cache in one build: what it says to the user, how often it fails, and the wait for what it still sends."""

from __future__ import annotations

import queue
from dataclasses import dataclass

from mlcbuild.engine.action_cache_lookup import RemoteFailure
from mlcbuild.engine.background import Background
from mlcbuild.engine.build_event_publisher import BuildEventPublisher
from mlcbuild.engine.remote import RemoteCache
from mlcbuild.errors import CacheError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """By the remote, for people."""

    message: str


class _Sent:
    """The remote has nothing more to send."""


class RemoteSession:
    """`remote` is None in a build without a remote cache. Used in the thread of the build, except for `failed`."""

    def __init__(
        self,
        remote: RemoteCache | None,
        *,
        inbox: queue.SimpleQueue[object],
        background: Background,
        build_events: BuildEventPublisher,
    ) -> None:
        self._remote = remote
        self._inbox = inbox
        self._background = background
        self._build_events = build_events
        self._failures = 0
        self.is_sending = False

    @property
    def bytes_downloaded(self) -> int:
        return self._remote.bytes_downloaded if self._remote else 0

    @property
    def bytes_uploaded(self) -> int:
        return self._remote.bytes_uploaded if self._remote else 0

    def start(self) -> None:
        if self._remote is not None:
            self._remote.start(lambda message: self._inbox.put(_Said(message=message)))

    def failed(self, error: CacheError) -> None:
        """The remote did not do what it was asked for. May be called from any thread."""
        self._inbox.put(RemoteFailure(message=str(error)))

    def receive(self, message: object) -> bool:
        """Take in a message from the inbox. Answers whether it was about the remote."""
        match message:
            case _Said(message=text):
                self._build_events.notice(text)
            case RemoteFailure(message=text):
                self._failures += 1
                if self._failures == 1:
                    self._build_events.notice(f"the remote cache failed; the build continues without it: {text}")
            case _Sent():
                self.is_sending = False
            case _:
                return False
        return True

    def finish(self) -> None:
        """Begin to wait, in the background, until the remote has sent everything. `is_sending` says whether it has."""
        remote = self._remote
        if remote is None:
            return

        def finish() -> list[object]:
            try:
                remote.finish()
            except CacheError as error:
                return [RemoteFailure(message=str(error)), _Sent()]
            return [_Sent()]

        self.is_sending = True
        self._background.run(finish)

    def abandon(self) -> None:
        """Do not wait for the remote any longer."""
        if self._remote is not None:
            self._remote.abandon()

    def conclude(self) -> None:
        """Tell the user how often the remote has failed, where it was more than once."""
        if self._failures > 1:
            self._build_events.notice(f"the remote cache failed {self._failures} times in this build")
