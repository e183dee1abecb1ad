"""A remote cache, one server after the other: whether it is reached, believed, written to, and how fast that goes.

Everything is done by the transport that builds use. What is written are blobs under their right names and results of
no action; they are removed at the end where the server removes things.
"""

from __future__ import annotations

import dataclasses
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult, ExecutedActionMetadata
from mlcbuild.cache.remote.configuration import RemoteConfiguration
from mlcbuild.cache.remote.probing import PARTED_BYTES, Heed, Probe
from mlcbuild.cache.remote.retrying import Retrying, RetryPolicy
from mlcbuild.cache.remote.transport import DigestFunctionError, ErrorKind, Transport, TransportError
from mlcbuild.doctor.check import Check, Part
from mlcbuild.doctor.finding import Figure, Finding, mistake, ok, problem, skipped, warning
from mlcbuild.figures import byte_count, duration, transfer_rate

T = TypeVar("T")
FIRST_BYTES = 1 << 20
BIG_BYTES = 16 << 20
_LOOK_UPS = 5
_FAR_SECONDS = 0.3
_SLOW_PACE = 2_000_000  # bytes a second
_MOST_SKEW = 60.0
_REFUSED_SKEW = 300.0
_ENOUGH_SECONDS = 2.0  # one that takes as long for the first blob is measured by it alone
_SMALL_BYTES = 40
_RETRIES = RetryPolicy(attempts=3, first=0.2, longest=2.0, total=15.0)
_LONGEST_CHECK = 120.0
_NOT_REACHED = "not tried: the server was not reached"


def impatient(configuration: RemoteConfiguration) -> RemoteConfiguration:
    """The same with shorter deadlines: who waits for an answer here sees nothing else meanwhile."""
    given = configuration.server.deadlines
    shorter = dataclasses.replace(
        given, connect=min(given.connect, 5.0), idle=min(given.idle, 10.0), total=min(given.total, 20.0)
    )
    return dataclasses.replace(configuration, server=dataclasses.replace(configuration.server, deadlines=shorter))


def remote_part(probe: Probe, *, address: str, may_write: bool, has_namespace: bool = False) -> Part:
    """`may_write`: builds send, and there. `has_namespace`: they send to a place below this one."""
    server = Server(probe, may_write=may_write, has_namespace=has_namespace)
    return Part(name="remote", subject=address, checks=server.checks, close=server.close)


class Server:
    """One server under examination."""

    def __init__(self, probe: Probe, *, may_write: bool, has_namespace: bool) -> None:
        self._probe = probe
        self._may_write = may_write
        self._has_namespace = has_namespace
        self._reached = False
        self._takes_blobs = False
        self._requests = 0
        self._again = 0
        self._blobs: dict[Digest, None] = {}  # that may have been stored, and have not been removed
        self._results: dict[Digest, None] = {}
        self._retrying = Retrying(_RETRIES, sleep=_slept)

    def checks(self) -> Sequence[Check]:
        def check(name: str, examine: Callable[[], Finding]) -> Check:
            return Check(name=name, examine=lambda: _told(examine), seconds=_LONGEST_CHECK)

        always = (
            check("credentials", self.credentials),
            check("look-ups", self.look_ups),
            check("clock", self.clock),
            check("digest function", self.digest_function),
        )
        writing = (
            check("blobs", self.blobs),
            check("results", self.results),
            check("conditions", self.conditions),
            check("checksums", self.checksums),
            check("parts", self.parts),
            check("throughput", self.throughput),
        )
        last = (check("retries", self.retries),)
        if not self._may_write:
            return (*always, check("writing", self.no_writing), *last)
        return (*always, *writing, *last, check("left behind", self.left_behind))

    def close(self) -> None:
        """Whatever was not removed in time is."""
        if self._blobs or self._results:
            _told(self.left_behind)
        self._probe.close()

    # Reading

    def credentials(self) -> Finding:
        found = self._probe.credentials()
        return ok(found) if found else ok("none are sent")

    def look_ups(self) -> Finding:
        """Results that are not there, one after the other on one connection: what each action of a build asks."""
        times = []
        for _ in range(_LOOK_UPS + 1):
            key = Digest(os.urandom(32).hex(), 100)
            began = time.perf_counter()
            if self._ask(lambda transport, key=key: transport.read_result(key)) is not None:  # type: ignore[misc]
                return problem("it has a result for a key that nobody ever had", "is this a cache's address?")
            times.append(time.perf_counter() - began)
        self._reached = True
        first, *others = times
        median = statistics.median(others)
        told = f"{duration(median)} each, at most {duration(max(others))}; the first one, with its connection, "
        told += duration(first)
        figures: dict[str, Figure] = {"median_seconds": median, "longest_seconds": max(others), "first_seconds": first}
        if median > _FAR_SECONDS:
            return warning(told, "far away, or busy: small actions may be sooner made than found", **figures)
        return ok(told, **figures)

    def clock(self) -> Finding:
        """Asked for even where we are refused: a wrong clock may be why."""
        began = time.time()
        shown = self._probe.server_time()
        ended = time.time()
        if shown is None:
            return skipped("this server does not tell its time")
        # It tells whole seconds: its clock shows `shown`, or up to one more.
        skew = max(shown - ended, 0.0) + min(shown + 1 - began, 0.0)
        figures: dict[str, Figure] = {"skew_seconds": skew}
        if abs(skew) <= _MOST_SKEW:
            return ok(f"within {max(abs(skew), 1):.0f} s of ours", **figures)
        told = f"the server's is {abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'} ours"
        advice = "set this machine's clock, or the server's: signed requests are refused at some minutes' difference"
        return problem(told, advice, **figures) if abs(skew) > _REFUSED_SKEW else warning(told, advice, **figures)

    def digest_function(self) -> Finding:
        return ok(self._probe.naming) if self._reached else skipped(_NOT_REACHED)

    def no_writing(self) -> Finding:
        if self._has_namespace:
            return skipped("not tried: what is sent goes to the namespace")
        return skipped("not tried: nothing is sent from here", "to try it: --remote-upload=results")

    def retries(self) -> Finding:
        figures: dict[str, Figure] = {"requests": self._requests, "again": self._again}
        if not self._reached:
            return skipped(_NOT_REACHED)
        if self._again:
            advice = "the server, or the way to it, fails now and then: builds try again as well, and lose time by it"
            return warning(f"{self._again} of {self._requests} requests had to be made again", advice, **figures)
        return ok(f"none, in {self._requests} requests", **figures)

    # Writing

    def blobs(self) -> Finding:
        """A few bytes there and back."""
        if not self._reached:
            return skipped(_NOT_REACHED)
        data = self._data(_SMALL_BYTES)
        with tempfile.TemporaryDirectory(prefix="mlcbuild-doctor-") as folder:
            digest, path = self._file(Path(folder), data)
            began = time.perf_counter()
            self._ask(lambda transport: transport.upload(digest, path, replace=not self._probe.removes))
            seconds = time.perf_counter() - began
        if self._ask(lambda transport: transport.missing([digest])):
            return problem("a blob is not there right after it was sent", "this server is no cache to be relied upon")
        if self._download(digest) != data:
            return problem("a blob comes back with other bytes", "this server is no cache to be relied upon")
        self._takes_blobs = True
        return ok(f"written in {duration(seconds)}, found, and read back", write_seconds=seconds)

    def results(self) -> Finding:
        if not self._reached:
            return skipped(_NOT_REACHED)
        function = self._probe.transport.function
        key = function.of_bytes(b"mlcbuild doctor" + (os.urandom(16) if self._probe.removes else b""))
        self._results[key] = None
        worker = f"mlcbuild doctor {os.urandom(4).hex()}"
        result = ActionResult(execution_metadata=ExecutedActionMetadata(worker=worker))
        self._ask(lambda transport: transport.write_result(key, result.encode(), replace=True))
        came = self._ask(lambda transport: transport.read_result(key))
        if came is None:
            return problem("a result is not there right after it was written", "see whether the server keeps results")
        try:
            is_right = ActionResult.decode(came).execution_metadata == result.execution_metadata
        except ValueError:
            is_right = False
        if not is_right:
            advice = "is there something between that keeps old answers? a cache must not stand before this cache"
            return problem("a result comes back as another one than was written", advice)
        return ok("written, and read back")

    def conditions(self) -> Finding:
        if not self._takes_blobs:
            return skipped("not tried: the server takes no blobs of ours")
        data = self._data(_SMALL_BYTES)
        digest = self._probe.transport.function.of_bytes(data)
        if self._probe.removes:
            self._blobs[digest] = None
        heed = self._probe.condition(digest, data)
        if heed is Heed.NOT_MADE:
            return skipped("this kind of server knows none")
        if heed is Heed.HEEDED:
            return ok("a write that demands that nothing be there is refused where something is")
        does = "takes If-None-Match and heeds it not" if heed is Heed.IGNORED else "refuses If-None-Match"
        return warning(
            f"the server {does}",
            "of two builds that make one result at a time, the later writes over the earlier: no wrong result comes "
            "of that,",
            "but where keys are trusted let nobody write who does not sign",
        )

    def checksums(self) -> Finding:
        if not self._takes_blobs:
            return skipped("not tried: the server takes no blobs of ours")
        data = os.urandom(_SMALL_BYTES)
        digest = self._probe.transport.function.of_bytes(data)
        if self._probe.removes:
            self._blobs[digest] = None
        heed = self._probe.checksum(digest, data)
        if heed is Heed.IGNORED:
            self._blobs[digest] = None
        if heed is Heed.HEEDED:
            return ok("bytes other than those that were promised are refused")
        if heed is Heed.REFUSED:
            return warning(
                "the server refuses uploads with a checksum, so it checks none",
                "what is damaged on its way in is found by whoever reads it, and made again",
            )
        return warning(
            "the server takes bytes other than those that were promised",
            "what is damaged on its way in is found by whoever reads it, and made again",
        )

    def parts(self) -> Finding:
        if not self._takes_blobs:
            return skipped("not tried: the server takes no blobs of ours")
        if not self._probe.removes:
            return skipped("this kind of server takes blobs whole")
        data = os.urandom(2 * PARTED_BYTES + 1)
        with tempfile.TemporaryDirectory(prefix="mlcbuild-doctor-") as folder:
            digest, path = self._file(Path(folder), data)
            began = time.perf_counter()
            if not self._probe.upload_in_parts(digest, path):
                return skipped("this kind of server takes blobs whole")
            seconds = time.perf_counter() - began
        if self._download(digest) != data:
            return problem("a blob sent in parts comes back with other bytes", "use another server")
        return ok(f"three, put together in {duration(seconds)}", seconds=seconds)

    def throughput(self) -> Finding:
        """A blob of 1 MiB, and where that was quick one of 16 MiB."""
        if not self._takes_blobs:
            return skipped("not tried: the server takes no blobs of ours")
        size, up, down = FIRST_BYTES, *self._there_and_back(FIRST_BYTES)
        if max(up, down) < _ENOUGH_SECONDS:
            size, up, down = BIG_BYTES, *self._there_and_back(BIG_BYTES)
        told = f"up {transfer_rate(size, up)}, down and verified {transfer_rate(size, down)} ({byte_count(size)})"
        figures: dict[str, Figure] = {"size_bytes": size, "up_seconds": up, "down_seconds": down}
        if size / down < _SLOW_PACE:
            return warning(told, "slow: what is quickly made is sooner made than fetched", **figures)
        return ok(told, **figures)

    def left_behind(self) -> Finding:
        count, size = len(self._blobs) + len(self._results), sum(digest.size_bytes for digest in self._blobs)
        if not count:
            return ok("nothing")
        if not self._probe.removes:
            self._blobs.clear()
            self._results.clear()
            told = f"{count} blobs and results, {byte_count(size)}: this kind of server removes nothing"
            return ok(f"{told}; it drops what is not used", count=count, size_bytes=size)
        failure = self._remove_all()
        if failure is None:
            return ok(f"nothing: {count} objects were removed", removed=count)
        left = len(self._blobs) + len(self._results)
        self._blobs.clear()
        self._results.clear()
        told = f"{left} objects, {byte_count(size)} at most: {' '.join(failure.message.split())}"
        if failure.kind is ErrorKind.REFUSED:
            # Who may not remove is as he should be: it is for a rule of the bucket.
            return ok(told, left=left)
        return warning(told, "a rule of the bucket that removes what is old takes them with it", left=left)

    def _remove_all(self) -> TransportError | None:
        """What kept it from removing the rest: no more is tried then."""
        for kept, remove in ((self._blobs, self._probe.remove), (self._results, self._probe.remove_result)):
            for digest in list(kept):
                try:
                    remove(digest)
                except TransportError as error:
                    return error
                del kept[digest]
        return None

    # Inside

    def _ask(self, request: Callable[[Transport], T]) -> T:
        def counted() -> None:
            self._again += 1

        self._requests += 1
        return self._retrying.run(lambda: request(self._probe.transport), again=counted)

    def _data(self, size: int) -> bytes:
        """Bytes that nobody has where they can be removed again, elsewhere the same each time."""
        if self._probe.removes:
            return os.urandom(size)
        return random.Random("mlcbuild doctor").randbytes(size)

    def _file(self, folder: Path, data: bytes) -> tuple[Digest, Path]:
        digest = self._probe.transport.function.of_bytes(data)
        path = folder / "blob"
        path.write_bytes(data)
        self._blobs[digest] = None
        return digest, path

    def _download(self, digest: Digest) -> bytes:
        """Raises TransportError, also where nothing is there."""
        pieces: list[bytes] = []

        def read(transport: Transport) -> bool:
            pieces.clear()
            return transport.download(digest, pieces.append)

        if not self._ask(read):
            raise TransportError(f"{self._probe.transport.address} has lost a blob", kind=ErrorKind.UNUSABLE)
        return b"".join(pieces)

    def _there_and_back(self, size: int) -> tuple[float, float]:
        data = self._data(size)
        with tempfile.TemporaryDirectory(prefix="mlcbuild-doctor-") as folder:
            digest, path = self._file(Path(folder), data)
            began = time.perf_counter()
            self._ask(lambda transport: transport.upload(digest, path, replace=not self._probe.removes))
            up = time.perf_counter() - began
        began = time.perf_counter()
        came = self._download(digest)
        if self._probe.transport.function.of_bytes(came) != digest:
            raise TransportError(
                f"{self._probe.transport.address} sent other bytes than it was given", kind=ErrorKind.UNUSABLE
            )
        return up, time.perf_counter() - began


def _told(examine: Callable[[], Finding]) -> Finding:
    try:
        return examine()
    except TransportError as error:
        return of_transport_error(error)


def of_transport_error(error: TransportError) -> Finding:
    """Whom to blame: what no retry and no other credential cures is a setting's mistake."""
    is_setting = isinstance(error, DigestFunctionError) or error.kind is ErrorKind.REFUSED
    if "is not installed" in error.message or "this machine's clock" in "".join(error.advice):
        is_setting = False
    made = mistake if is_setting else problem
    return made(" ".join(error.message.split()), *error.advice)


def _slept(seconds: float) -> bool:
    time.sleep(seconds)
    return True
