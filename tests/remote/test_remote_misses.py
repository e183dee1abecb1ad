"""A lookup that finds nothing says why: reasons of misses are told apart, and a lookup waits no longer than it may."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.remote.counters import MissReason
from mlcbuild.cache.remote.transport import ErrorKind, TransportError
from mlcbuild.errors import CacheError
from tests.remote.cache_world import machine
from tests.remote.memory_transport import BLAKE3, MemoryTransport, transient
from tests.remote.remote_stores import filled, misses, patient, wait_for, waiting_for


def test_reasons_of_misses_are_told_apart(tmp_path: Path, server: MemoryTransport) -> None:
    (sent,) = filled(tmp_path / "a", server)
    one = machine(tmp_path / "b", server, asks_for_blobs=True)
    one.cache.find(BLAKE3.of_bytes(b"nobody's"), one.store)
    del server.blobs[sent.result.output_files[1].digest]
    one.cache.find(sent.key, one.store)
    assert misses(one) == {MissReason.ABSENT: 1, MissReason.INCOMPLETE: 1}
    server.fail = lambda _method: transient("the connection is refused")
    one.cache.find(sent.key, one.store)
    server.fail = lambda _method: TransportError("no answer in time", kind=ErrorKind.TRANSIENT, is_timeout=True)
    one.cache.find(sent.key, one.store)
    server.fail = lambda _method: TransportError("no credentials", kind=ErrorKind.DENIED)
    one.cache.find(sent.key, one.store)
    one.cache.find(sent.key, one.store)
    assert misses(one) == {
        MissReason.ABSENT: 1,
        MissReason.INCOMPLETE: 1,
        MissReason.FAILED: 1,
        MissReason.TIMED_OUT: 1,
        MissReason.DENIED: 1,
        MissReason.OFF: 1,
    }


ENDS = {
    MissReason.FAILED: transient("the connection is refused"),
    MissReason.TIMED_OUT: TransportError("no answer in time", kind=ErrorKind.TRANSIENT, is_timeout=True),
    MissReason.DENIED: TransportError("no credentials", kind=ErrorKind.DENIED),
}


@pytest.mark.parametrize("reason", ENDS)
@pytest.mark.parametrize("methods", [("read_result",), ("download", "download_many"), ("missing",)])
def test_whatever_ends_a_lookup_is_counted_as_what_it_was(
    tmp_path: Path, server: MemoryTransport, methods: tuple[str, ...], reason: MissReason
) -> None:
    """The result itself, its Trees, and the question for its blobs."""
    (sent,) = filled(tmp_path / "a", server)
    one = machine(tmp_path / "b", server, asks_for_blobs=True)
    server.fail = lambda method: ENDS[reason] if method in methods else None
    assert one.cache.find(sent.key, one.store) is None
    assert misses(one) == {reason: 1}


def test_an_error_that_is_raised_counts_as_a_miss_too(tmp_path: Path) -> None:
    def check(_key: Digest, _result: ActionResult) -> str:
        raise CacheError("the signing key is not readable")

    server = MemoryTransport()
    (sent,) = filled(tmp_path / "a", server)
    one = machine(tmp_path / "b", server, hooks={"check": check})
    with pytest.raises(CacheError):
        one.cache.find(sent.key, one.store)
    assert misses(one) == {MissReason.FAILED: 1}


def test_a_lookup_without_an_answer_at_the_end_is_a_miss_that_timed_out(tmp_path: Path) -> None:
    gate = threading.Event()
    server = MemoryTransport(fail=waiting_for(gate))
    one = machine(tmp_path, server)
    asking = threading.Thread(target=lambda: one.cache.find(BLAKE3.of_bytes(b"key"), one.store))
    asking.start()
    wait_for(lambda: server.calls["read_result"])
    one.cache.finish()
    assert misses(one) == {MissReason.TIMED_OUT: 1}
    gate.set()
    asking.join()
    assert misses(one) == {MissReason.TIMED_OUT: 1}


def test_the_last_failure_is_told_at_the_end_if_no_lookup_had_given_up(tmp_path: Path) -> None:
    """A build may end while its lookups still wait to try again."""
    server = MemoryTransport(fail=lambda _method: transient("the connection is refused"))
    one = machine(tmp_path, server)
    one = dataclasses.replace(one, cache=patient(server, one))
    asking = threading.Thread(target=lambda: one.cache.find(BLAKE3.of_bytes(b"key"), one.store))
    asking.start()
    wait_for(lambda: server.calls["read_result"])
    assert one.told == []
    one.cache.finish()
    asking.join()
    (told,) = one.told
    assert "the connection is refused" in told
    assert server.address in told
    assert misses(one) == {MissReason.FAILED: 1}


def test_a_failure_that_a_retry_overcame_is_not_told(tmp_path: Path, server: MemoryTransport) -> None:
    (sent,) = filled(tmp_path / "a", server)
    failing = iter([True, False] * 100)
    server.fail = lambda _method: transient("slow down") if next(failing) else None
    one = machine(tmp_path / "b", server)
    assert one.takes(sent)
    one.cache.finish()
    assert one.told == []
