"""A server in memory that does what its contract allows servers to do, by chance or on command."""

from __future__ import annotations

import collections
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.transport import ErrorKind, OnSent, Sink, TransportError, ignore_progress

BLAKE3 = DigestFunction.BLAKE3


def flipped(data: bytes) -> bytes:
    return bytes([data[0] ^ 1, *data[1:]]) if data else data


@dataclass
class Chance:
    """How likely each fault is, of 1, at every request; `seed` decides the rest."""

    seed: int
    transient: float = 0.0  # before anything was done
    lost_answer: float = 0.0  # after everything was done
    cut: float = 0.0  # in the middle of a download
    flip: float = 0.0  # a byte of a download
    spoil: float = 0.0  # a result that is read: other bytes, those of another key, of a failure, of an escaping path
    evict: float = 0.0  # a blob goes
    refuse: float = 0.0  # for good, from then on


@dataclass
class MemoryTransport:
    """A Transport. `fail` is asked before each request, by the name of the method, for an error to raise."""

    chance: Chance = field(default_factory=lambda: Chance(seed=0))
    address: str = "memory://server"
    function: DigestFunction = BLAKE3
    blobs: dict[Digest, bytes] = field(default_factory=dict)
    results: dict[Digest, bytes] = field(default_factory=dict)
    calls: collections.Counter[str] = field(default_factory=collections.Counter)
    evicted: set[Digest] = field(default_factory=set)
    spoil_with: Callable[[random.Random, Digest, bytes], bytes] = lambda _random, _key, data: flipped(data)
    fail: Callable[[str], Exception | None] = lambda _method: None
    fail_item: Callable[[Digest], Exception | None] = lambda _key: None  # the same for a result that is written
    replaces: bool = True  # where it is asked to
    is_refusing: bool = False
    is_closed: bool = False

    def __post_init__(self) -> None:
        self.random = random.Random(self.chance.seed)
        self.lock = threading.RLock()

    def missing(self, digests: Sequence[Digest]) -> tuple[Digest, ...]:
        self._begin("missing")
        with self.lock:
            return tuple(digest for digest in dict.fromkeys(digests) if digest not in self.blobs)

    def download(self, digest: Digest, sink: Sink) -> bool:
        self._begin("download")
        data = self._read(digest)
        if data is None:
            return False
        if data and self._happens(self.chance.cut):
            sink(data[: len(data) // 2])
            raise transient("cut short")
        for start in range(0, len(data), 1000):
            sink(data[start : start + 1000])
        return True

    def upload(self, digest: Digest, path: Path, *, replace: bool = False, on_sent: OnSent = ignore_progress) -> bool:
        self._begin("upload")
        is_new = self._keep(digest, path, replace=replace)
        self._end()
        return is_new

    def read_result(self, key: Digest) -> bytes | None:
        self._begin("read_result")
        with self.lock:
            data = self.results.get(key)
        if data is not None and self._happens(self.chance.spoil):
            return self.spoil_with(self.random, key, data)
        return data

    def write_result(self, key: Digest, data: bytes, *, replace: bool = False) -> bool:
        self._begin("write_result")
        if error := self.fail_item(key):
            raise error
        with self.lock:
            is_written = replace or key not in self.results
            if is_written:
                self.results[key] = data
        self._end()
        return is_written

    def close(self) -> None:
        self.is_closed = True

    # Faults

    def _begin(self, method: str) -> None:
        with self.lock:
            self.calls[method] += 1
        if self._happens(self.chance.refuse):
            self.is_refusing = True
        if self.is_refusing:
            raise TransportError("not allowed", kind=ErrorKind.DENIED)
        error = self.fail(method)
        if error is not None:
            raise error
        if self._happens(self.chance.evict):
            with self.lock:
                if self.blobs:
                    gone = self.random.choice(sorted(self.blobs))
                    self.evicted.add(gone)
                    del self.blobs[gone]
        if self._happens(self.chance.transient):
            raise transient("reset")

    def _end(self) -> None:
        if self._happens(self.chance.lost_answer):
            raise transient("the answer was lost")

    def _happens(self, likely: float) -> bool:
        with self.lock:
            return likely > 0 and self.random.random() < likely

    def _read(self, digest: Digest) -> bytes | None:
        with self.lock:
            data = self.blobs.get(digest)
        return flipped(data) if data is not None and self._happens(self.chance.flip) else data

    def _keep(self, digest: Digest, path: Path, *, replace: bool) -> bool:
        data = path.read_bytes()
        assert self.function.of_bytes(data) == digest, "a file was sent that is not its blob"
        with self.lock:
            is_kept = digest in self.blobs and not (replace and self.replaces)
            if not is_kept:
                self.blobs[digest] = data
        return not is_kept


@dataclass
class BatchingMemoryTransport(MemoryTransport):
    """A BatchingTransport."""

    batched_bytes: int = 1000

    def download_many(self, digests: Sequence[Digest]) -> Iterator[tuple[Digest, bytes | None]]:
        self._begin("download_many")
        for digest in dict.fromkeys(digests):
            assert digest.size_bytes <= self.batched_bytes
            if self._happens(self.chance.cut):
                raise transient("cut short")
            yield digest, self._read(digest)

    def upload_many(self, blobs: Sequence[tuple[Digest, Path]], *, replace: bool = False) -> tuple[Digest, ...]:
        self._begin("upload_many")
        kept = []
        for digest, path in blobs:
            assert digest.size_bytes <= self.batched_bytes
            if not self._keep(digest, path, replace=replace):
                kept.append(digest)
        self._end()
        return tuple(kept)


def transient(message: str, *, retry_after: float = 0.0) -> TransportError:
    return TransportError(message, kind=ErrorKind.TRANSIENT, retry_after=retry_after)


class Clock:
    """Time that goes on when somebody sleeps, and by nothing else."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> bool:
        with self._lock:
            self.now += seconds
            self.slept.append(seconds)
        return True
