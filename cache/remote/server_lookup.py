"""Looks up a result on a server, checks it, and stores its inlined outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.remote.counters import MissReason, Tally
from mlcbuild.cache.remote.downloads import Downloads
from mlcbuild.cache.remote.remote_server import Access, RemoteServer
from mlcbuild.cache.remote.result_checksum import has_right_checksum, without_checksum
from mlcbuild.cache.remote.results import blobs_in, blobs_in_trees, take_contents, unique, why_unusable
from mlcbuild.cache.remote.transport import ErrorKind, TransportError
from mlcbuild.cache.store import BlobMissingError, LocalBlobStore

Check = Callable[[Digest, ActionResult], str]
_REASONS = {
    ErrorKind.DENIED: MissReason.DENIED,
    ErrorKind.ITEM: MissReason.INVALID,
    ErrorKind.OFF: MissReason.OFF,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundResult:
    """A usable result, and all blobs that it names, also in Trees."""

    result: ActionResult
    blobs: tuple[Digest, ...]


class ServerLookup:
    """Look-ups on one server. With `asks_for_blobs`, all blobs of a result must be on the server or on the disk."""

    def __init__(
        self,
        server: RemoteServer,
        *,
        downloads: Downloads,
        tally: Tally,
        check: Check,
        asks_for_blobs: bool,
        warn: Callable[[str], object],
    ) -> None:
        self._server = server
        self._downloads = downloads
        self._tally = tally
        self._check = check
        self._asks_for_blobs = asks_for_blobs
        self._warn = warn
        self._has_warned = False
        self._has_told_unusable = False

    def find(self, key: Digest, store: LocalBlobStore) -> FoundResult | MissReason:
        """The result, with its Trees in the store, or why there is none. Raises what the store and `check` raise."""
        if self._server.is_off(Access.READ):
            return MissReason.OFF
        try:
            data = self._server.ask(Access.READ, lambda: self._server.transport.read_result(key))
        except TransportError as error:
            if error.kind is ErrorKind.ITEM:
                self._tell_unusable(error)
            return reason_of(error)
        if data is None:
            return MissReason.ABSENT
        self._tally.add(bytes_downloaded=len(data))
        try:
            result = ActionResult.decode(data)
        except ValueError:
            return MissReason.INVALID
        if not has_right_checksum(key, result, store.function):
            return MissReason.INVALID
        result = without_checksum(result)
        untrusted = self._check(key, result)
        if untrusted:
            self._tell_untrusted(key, untrusted)
            return MissReason.UNSIGNED
        if why_unusable(result, store.function):
            return MissReason.INVALID
        return self._with_its_blobs(take_contents(result, store), store)

    def _with_its_blobs(self, result: ActionResult, store: LocalBlobStore) -> FoundResult | MissReason:
        trees = [directory.tree_digest for directory in result.output_directories]
        errors: list[TransportError] = []
        if self._downloads.fetch(trees, store, errors):
            return reason_of(errors[-1]) if errors else MissReason.INCOMPLETE
        try:
            blobs = unique(*blobs_in(result), *blobs_in_trees(result, store))
        except BlobMissingError:
            return MissReason.INCOMPLETE
        except ValueError:
            return MissReason.INVALID
        if self._asks_for_blobs:
            try:
                wanted = store.missing(blobs)
                if wanted and self._server.ask(Access.READ, lambda: self._server.transport.missing(wanted)):
                    return MissReason.INCOMPLETE
            except TransportError as error:
                return reason_of(error)
        return FoundResult(result=result, blobs=blobs)

    def _tell_unusable(self, error: TransportError) -> None:
        if not self._has_told_unusable:
            self._has_told_unusable = True
            self._warn(
                f"a result of the remote cache {self._server.address} cannot be used and counts as absent: {error}"
            )

    def _tell_untrusted(self, key: Digest, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(
                f"results of the remote cache {self._server.address} are not trusted, the first of them {key}: {reason}"
            )


def reason_of(error: TransportError) -> MissReason:
    """What a lookup that ended in this error counts as."""
    return _REASONS.get(error.kind, MissReason.TIMED_OUT if error.is_timeout else MissReason.FAILED)


def first_reason(reasons: Sequence[MissReason]) -> MissReason:
    """The reason of a miss on several servers: the first one that is not ABSENT."""
    return next((reason for reason in reasons if reason is not MissReason.ABSENT), MissReason.ABSENT)
