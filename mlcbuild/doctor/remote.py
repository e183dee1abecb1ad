"""A remote cache: whether it can be reached, read and written, what its server guarantees, and how fast it is.

Everything uses the transport of builds. Checks write blobs under their right names, and results of no real action.
They are removed at the end if the server can remove.
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
from mlcbuild.cache.remote.probing import PARTED_BYTES, Probe, Support
from mlcbuild.cache.remote.retrying import Retrying, RetryPolicy
from mlcbuild.cache.remote.transport import DigestFunctionError, ErrorKind, Transport, TransportError
from mlcbuild.doctor.check import Check, Part
from mlcbuild.doctor.finding import Figure, Finding, failed, ok, skipped, warning, wrong_setting
from mlcbuild.figures import byte_count, duration, transfer_rate

T = TypeVar("T")
FIRST_BYTES = 1 << 20
BIG_BYTES = 16 << 20
_LOOK_UPS = 5
_FAR_SECONDS = 0.3
_SLOW_PACE = 2_000_000  # bytes a second
_MOST_SKEW = 60.0
_DENIED_SKEW = 300.0
_ENOUGH_SECONDS = 2.0  # if the first blob takes this long, no larger one is tested
_SMALL_BYTES = 40
_RETRIES = RetryPolicy(attempts=3, first=0.2, longest=2.0, total=15.0)
_LONGEST_CHECK = 120.0
_NOT_REACHED = "not tested: the server was not reached"


def impatient(configuration: RemoteConfiguration) -> RemoteConfiguration:
    """The same configuration with shorter deadlines, because a person waits for each check."""
    given = configuration.server.deadlines
    shorter = dataclasses.replace(
        given, connect=min(given.connect, 5.0), idle=min(given.idle, 10.0), total=min(given.total, 20.0)
    )
    return dataclasses.replace(configuration, server=dataclasses.replace(configuration.server, deadlines=shorter))


def remote_part(probe: Probe, *, address: str, may_write: bool, has_namespace: bool = False) -> Part:
    """`may_write`: builds send results to this address. `has_namespace`: they send them to a namespace below it."""
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
        self._blobs: dict[Digest, None] = {}  # that may be stored and are not yet removed
        self._results: dict[Digest, None] = {}
        self._retrying = Retrying(_RETRIES, sleep=_slept)

    def checks(self) -> Sequence[Check]:
        def check(name: str, examine: Callable[[], Finding]) -> Check:
            return Check(name=name, examine=lambda: _checked(examine), seconds=_LONGEST_CHECK)

        always = (
            check("credentials", self.credentials),
            check("lookups", self.look_ups),
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
        """Remove what the checks have not removed yet."""
        if self._blobs or self._results:
            _checked(self.left_behind)
        self._probe.close()

    # Reading

    def credentials(self) -> Finding:
        found = self._probe.credentials()
        return ok(found) if found else ok("none")

    def look_ups(self) -> Finding:
        """Looks up absent results one after the other on one connection, as each action of a build does."""
        times = []
        for _ in range(_LOOK_UPS + 1):
            key = Digest(os.urandom(32).hex(), 100)
            began = time.perf_counter()
            if self._ask(lambda transport, key=key: transport.read_result(key)) is not None:  # type: ignore[misc]
                return failed("it returns a result for a random key", "check that this is the address of a cache")
            times.append(time.perf_counter() - began)
        self._reached = True
        first, *others = times
        median = statistics.median(others)
        measured = (
            f"{duration(median)} each, at most {duration(max(others))}; the first one, including its connection, "
        )
        measured += duration(first)
        figures: dict[str, Figure] = {"median_seconds": median, "longest_seconds": max(others), "first_seconds": first}
        if median > _FAR_SECONDS:
            return warning(measured, "distant or busy: small actions may run faster than they are found", **figures)
        return ok(measured, **figures)

    def clock(self) -> Finding:
        """Compares clocks even if the server denies access, because a wrong clock may be the reason."""
        began = time.time()
        shown = self._probe.server_time()
        ended = time.time()
        if shown is None:
            return skipped("this server does not report its time")
        # It reports whole seconds: its clock is between `shown` and one second more.
        skew = max(shown - ended, 0.0) + min(shown + 1 - began, 0.0)
        figures: dict[str, Figure] = {"skew_seconds": skew}
        if abs(skew) <= _MOST_SKEW:
            return ok(f"within {max(abs(skew), 1):.0f} s of ours", **figures)
        measured = f"the server's clock is {abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'} ours"
        advice = "set this machine's clock or the server's: servers deny signed requests if clocks differ by minutes"
        return failed(measured, advice, **figures) if abs(skew) > _DENIED_SKEW else warning(measured, advice, **figures)

    def digest_function(self) -> Finding:
        return ok(self._probe.naming) if self._reached else skipped(_NOT_REACHED)

    def no_writing(self) -> Finding:
        if self._has_namespace:
            return skipped("not tested: results are sent to the namespace")
        return skipped("not tested: this machine sends nothing", "to test it, give --remote-upload=results")

    def retries(self) -> Finding:
        figures: dict[str, Figure] = {"requests": self._requests, "again": self._again}
        if not self._reached:
            return skipped(_NOT_REACHED)
        if self._again:
            advice = "the server or the network fails at times: builds retry too, and lose time"
            return warning(f"{self._again} of {self._requests} requests had to be repeated", advice, **figures)
        return ok(f"none in {self._requests} requests", **figures)

    # Writing

    def blobs(self) -> Finding:
        """Writes a few bytes and reads them back."""
        if not self._reached:
            return skipped(_NOT_REACHED)
        data = self._data(_SMALL_BYTES)
        with tempfile.TemporaryDirectory(prefix="mlcbuild-doctor-") as folder:
            digest, path = self._file(Path(folder), data)
            began = time.perf_counter()
            self._ask(lambda transport: transport.upload(digest, path, replace=not self._probe.removes))
            seconds = time.perf_counter() - began
        if self._ask(lambda transport: transport.missing([digest])):
            return failed("a blob is missing right after it was written", "do not use this server as a cache")
        if self._download(digest) != data:
            return failed("a blob reads back with other bytes", "do not use this server as a cache")
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
            return failed("a result is missing right after it was written", "check whether the server stores results")
        try:
            is_right = ActionResult.decode(came).execution_metadata == result.execution_metadata
        except ValueError:
            is_right = False
        if not is_right:
            advice = "check for a caching proxy between: it must not cache these requests"
            return failed("a result reads back different from what was written", advice)
        return ok("written, and read back")

    def conditions(self) -> Finding:
        if not self._takes_blobs:
            return skipped("not tested: the server did not store a blob")
        data = self._data(_SMALL_BYTES)
        digest = self._probe.transport.function.of_bytes(data)
        if self._probe.removes:
            self._blobs[digest] = None
        support = self._probe.condition(digest, data)
        if support is Support.NOT_APPLICABLE:
            return skipped("this kind of server has none")
        if support is Support.SUPPORTED:
            return ok("a conditional write does not replace an existing object")
        does = "ignores If-None-Match" if support is Support.IGNORED else "does not support If-None-Match"
        return warning(
            f"the server {does}",
            "if two builds make the same result at the same time, the later one replaces the earlier; neither is wrong",
            "with trusted keys, allow only machines that sign to write",
        )

    def checksums(self) -> Finding:
        if not self._takes_blobs:
            return skipped("not tested: the server did not store a blob")
        data = os.urandom(_SMALL_BYTES)
        digest = self._probe.transport.function.of_bytes(data)
        if self._probe.removes:
            self._blobs[digest] = None
        support = self._probe.checksum(digest, data)
        if support is Support.IGNORED:
            self._blobs[digest] = None
        if support is Support.SUPPORTED:
            return ok("an upload with a wrong checksum is rejected")
        if support is Support.REJECTED:
            return warning(
                "the server rejects uploads with a checksum, so it does not check them",
                "readers detect blobs that were damaged in the upload, and build them again",
            )
        return warning(
            "the server accepts an upload with a wrong checksum",
            "readers detect blobs that were damaged in the upload, and build them again",
        )

    def parts(self) -> Finding:
        if not self._takes_blobs:
            return skipped("not tested: the server did not store a blob")
        if not self._probe.removes:
            return skipped("this kind of server takes blobs in one part")
        data = os.urandom(2 * PARTED_BYTES + 1)
        with tempfile.TemporaryDirectory(prefix="mlcbuild-doctor-") as folder:
            digest, path = self._file(Path(folder), data)
            began = time.perf_counter()
            if not self._probe.upload_in_parts(digest, path):
                return skipped("this kind of server takes blobs in one part")
            seconds = time.perf_counter() - began
        if self._download(digest) != data:
            return failed("a blob sent in parts reads back with other bytes", "use another server")
        return ok(f"three parts, joined in {duration(seconds)}", seconds=seconds)

    def throughput(self) -> Finding:
        """Transfers a blob of 1 MiB and, if that was fast, one of 16 MiB."""
        if not self._takes_blobs:
            return skipped("not tested: the server did not store a blob")
        size, up, down = FIRST_BYTES, *self._there_and_back(FIRST_BYTES)
        if max(up, down) < _ENOUGH_SECONDS:
            size, up, down = BIG_BYTES, *self._there_and_back(BIG_BYTES)
        measured = f"up {transfer_rate(size, up)}, down and verified {transfer_rate(size, down)} ({byte_count(size)})"
        figures: dict[str, Figure] = {"size_bytes": size, "up_seconds": up, "down_seconds": down}
        if size / down < _SLOW_PACE:
            return warning(measured, "slow: running a fast action may be faster than downloading its result", **figures)
        return ok(measured, **figures)

    def left_behind(self) -> Finding:
        count, size = len(self._blobs) + len(self._results), sum(digest.size_bytes for digest in self._blobs)
        if not count:
            return ok("nothing")
        if not self._probe.removes:
            self._blobs.clear()
            self._results.clear()
            measured = f"{count} blobs and results, {byte_count(size)}: this kind of server cannot remove them"
            return ok(f"{measured}; it drops unused objects", count=count, size_bytes=size)
        failure = self._remove_all()
        if failure is None:
            return ok(f"nothing: {count} objects were removed", removed=count)
        left = len(self._blobs) + len(self._results)
        self._blobs.clear()
        self._results.clear()
        measured = f"{left} objects, {byte_count(size)} at most: {' '.join(failure.message.split())}"
        if failure.kind is ErrorKind.DENIED:
            # Credentials without the permission to remove are recommended; a rule of the bucket removes the objects.
            return ok(measured, left=left)
        return warning(measured, "a rule of the bucket that expires old objects will remove them", left=left)

    def _remove_all(self) -> TransportError | None:
        """Remove everything; return the error that stopped it."""
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
        """Random bytes if they can be removed again, else the same bytes each time."""
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
        """Raises TransportError, also for a missing blob."""
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


def _checked(examine: Callable[[], Finding]) -> Finding:
    try:
        return examine()
    except TransportError as error:
        return of_transport_error(error)


def of_transport_error(error: TransportError) -> Finding:
    """The finding for a transport error. An error that a retry cannot fix is one in a setting."""
    is_setting = isinstance(error, DigestFunctionError) or error.kind is ErrorKind.DENIED
    if "is not installed" in error.message or "this machine's clock" in "".join(error.advice):
        is_setting = False
    make = wrong_setting if is_setting else failed
    return make(" ".join(error.message.split()), *error.advice)


def _slept(seconds: float) -> bool:
    time.sleep(seconds)
    return True
