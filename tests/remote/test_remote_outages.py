"""A remote cache that fails: retries, servers that are left alone, and what is sent when they answer again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mlcbuild.cache.remote.counters import MissReason
from mlcbuild.cache.remote.transport import ErrorKind, TransportError
from tests.remote.cache_world import machine, made
from tests.remote.memory_transport import MemoryTransport, transient
from tests.remote.remote_stores import filled, misses, wait_for


def test_transient_errors_are_survived(tmp_path: Path, server: MemoryTransport) -> None:
    failing: Iterator[bool] = iter([True, False] * 100)
    server.fail = lambda _method: transient("slow down", retry_after=7.0) if next(failing) else None
    one = machine(tmp_path / "a", server)
    sent = made(one.store, 1)
    one.send(sent)
    one.cache.finish()
    assert one.cache.counters.uploads_dropped == 0
    assert min(one.clock.slept) >= 7.0
    assert machine(tmp_path / "b", server).takes(sent)


def test_refused_uploads_end_uploads_alone(tmp_path: Path, server: MemoryTransport) -> None:
    (sent,) = filled(tmp_path / "a", server)
    refused = TransportError("403", kind=ErrorKind.DENIED)
    server.fail = lambda method: refused if method in ("upload", "upload_many", "write_result") else None
    one = machine(tmp_path / "b", server)
    for number in range(2, 6):
        one.send(made(one.store, number))
    one.cache.finish()
    (told,) = one.told
    assert "uploads are disabled" in told
    assert server.address in told
    assert one.cache.counters.uploads_dropped == 4
    assert one.takes(sent)


@pytest.mark.parametrize("kind", [ErrorKind.DENIED, ErrorKind.UNUSABLE])
def test_a_server_that_refuses_reading_or_makes_no_sense_is_left_alone(tmp_path: Path, kind: ErrorKind) -> None:
    server = MemoryTransport(fail=lambda _method: TransportError("no", kind=kind))
    one = machine(tmp_path, server)
    for number in range(5):
        assert not one.takes(made(one.store, number))
        one.send(made(one.store, number))
    one.cache.finish()
    assert sum(server.calls.values()) == 1
    assert len(one.told) == 1
    assert one.cache.counters.uploads_dropped == 5


def test_a_server_that_keeps_failing_is_left_alone_and_tried_again(tmp_path: Path) -> None:
    server = MemoryTransport()
    (sent,) = filled(tmp_path / "a", server)
    server.fail = lambda _method: transient("no answer")
    one = machine(tmp_path / "b", server)
    for number in range(10):
        assert not one.takes(made(one.store, number))
    assert server.calls["read_result"] == 3 * 3  # three operations of three attempts each
    assert misses(one) == {MissReason.FAILED: 3, MissReason.OFF: 7}
    for _ in range(10):
        one.clock.now += 60.0
        assert not one.takes(sent)
        assert not one.takes(sent)
    assert server.calls["read_result"] == 3 * 3 + 10  # one attempt each time
    server.fail = lambda _method: None
    assert not one.takes(sent)
    one.clock.now += 60.0
    assert one.takes(sent)
    assert one.takes(sent)
    assert len(one.told) == 3  # the first failure, that it is left alone, and that it answers again
    assert "tries it again later" in one.told[1]
    assert "answers again" in one.told[2]


@pytest.mark.parametrize("kind", [ErrorKind.ITEM, ErrorKind.DENIED])
def test_a_trial_that_ends_otherwise_leaves_nothing_half_open(
    tmp_path: Path, server: MemoryTransport, kind: ErrorKind
) -> None:
    (sent,) = filled(tmp_path / "a", server)
    server.fail = lambda _method: transient("no answer")
    one = machine(tmp_path / "b", server)
    for number in range(4):
        one.takes(made(one.store, number))
    one.clock.now += 60.0
    server.fail = lambda _method: TransportError("no", kind=kind)
    assert not one.takes(sent)
    server.fail = lambda _method: None
    assert one.takes(sent) == (kind is ErrorKind.ITEM)


def test_what_was_not_sent_is_sent_when_the_server_answers_again(tmp_path: Path, server: MemoryTransport) -> None:
    server.fail = lambda _method: transient("the server restarts")
    one = machine(tmp_path / "a", server)
    sent = [made(one.store, number) for number in range(12)]
    for each in sent[:11]:
        one.send(each)
        wait_for(lambda: not one.cache.sending)
    assert one.cache.counters.uploads_dropped == 0
    server.fail = lambda _method: None
    one.clock.now += 60.0
    one.send(sent[11])
    wait_for(lambda: len(server.results) == 12)
    one.cache.finish()
    counters = one.cache.counters
    assert (counters.results_uploaded, counters.uploads_dropped) == (12, 0)
    other = machine(tmp_path / "b", server)
    assert all(other.takes(each) for each in sent)


def test_what_was_not_sent_is_sent_at_the_end(tmp_path: Path, server: MemoryTransport) -> None:
    """Also if the pause before the next trial is not over, and nothing else has asked the server meanwhile."""
    server.fail = lambda _method: transient("the server restarts")
    one = machine(tmp_path / "a", server)
    sent = [made(one.store, number) for number in range(12)]
    for each in sent:
        one.send(each)
        wait_for(lambda: not one.cache.sending)
    server.fail = lambda _method: None
    one.cache.finish()
    assert (one.cache.counters.results_uploaded, one.cache.counters.uploads_dropped) == (12, 0)


def test_a_server_that_does_not_come_back_costs_the_end_one_request(tmp_path: Path) -> None:
    server = MemoryTransport(fail=lambda _method: transient("no answer"))
    one = machine(tmp_path / "a", server)
    for number in range(12):
        one.send(made(one.store, number))
        wait_for(lambda: not one.cache.sending)
    before = sum(server.calls.values())
    one.cache.finish()
    assert sum(server.calls.values()) <= before + 1 + 4  # a trial; its blobs are sent by as many threads
    assert one.cache.counters.uploads_dropped == 12
    assert "12 results not sent" in one.told[-1]
    assert "mlcbuild cache push" in one.told[-1]


def test_a_result_that_alone_fails_holds_up_no_other(tmp_path: Path) -> None:
    server = MemoryTransport()
    one = machine(tmp_path / "a", server)
    bad, good = made(one.store, 1), made(one.store, 2)
    server.fail_item = lambda key: transient("no answer") if key == bad.key else None
    one.send(bad)
    wait_for(lambda: not one.cache.sending)
    one.send(good)
    one.cache.finish()
    assert set(server.results) == {good.key}
    assert one.cache.counters.uploads_dropped == 1
