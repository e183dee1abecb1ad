"""Sending: in the background, each blob once, and several remotes of which the first is written."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tests.remote.cache_world import machine, made
from tests.remote.memory_transport import BatchingMemoryTransport, MemoryTransport, transient
from tests.remote.remote_stores import filled, waiting_for

# Several servers


def test_all_are_read_in_order_and_the_first_is_written(tmp_path: Path) -> None:
    trusted, own = MemoryTransport(address="memory://trusted"), MemoryTransport(address="memory://own")
    (sent,) = filled(tmp_path / "a", trusted)
    one = machine(tmp_path / "b", own, trusted)
    assert one.takes(sent)
    one.send(made(one.store, 2))
    one.cache.finish()
    assert (len(trusted.results), len(own.results)) == (1, 1)
    (new,) = own.results
    assert not machine(tmp_path / "c", trusted).takes(made(one.store, 2))
    reader = machine(tmp_path / "d", own, trusted)
    assert reader.takes(made(one.store, 2))
    assert new == made(one.store, 2).key


def test_one_that_is_off_hides_no_other(tmp_path: Path) -> None:
    broken, good = MemoryTransport(fail=lambda _method: transient("no")), MemoryTransport()
    sent = filled(tmp_path / "a", good, *range(1, 7))
    one = machine(tmp_path / "b", broken, good)
    assert all(one.takes(each) for each in sent)


# Uploads in the background


def test_sending_waits_for_nothing_and_the_end_waits_for_it_so_long(tmp_path: Path) -> None:
    gate = threading.Event()
    server = MemoryTransport(fail=waiting_for(gate))
    one = machine(tmp_path, server, drain_seconds=0.3)
    began = time.monotonic()
    for number in range(20):
        one.send(made(one.store, number))
    one.cache.finish()
    assert time.monotonic() - began < 20
    gate.set()
    assert one.cache.counters.uploads_dropped == 20
    assert "20 results not sent" in one.told[-1]


def test_what_is_abandoned_is_dropped_at_once(tmp_path: Path) -> None:
    gate = threading.Event()
    server = MemoryTransport(fail=waiting_for(gate))
    one = machine(tmp_path, server, drain_seconds=1000.0)
    one.send(made(one.store, 1))
    threading.Timer(0.2, one.cache.abandon).start()
    one.cache.finish()
    gate.set()
    assert one.cache.counters.uploads_dropped == 1
    one.send(made(one.store, 2))
    assert one.cache.counters.uploads_dropped == 2


def test_a_blob_that_left_the_store_drops_its_result_alone(tmp_path: Path) -> None:
    server = MemoryTransport()
    one = machine(tmp_path / "a", server)
    broken, good = made(one.store, 1), made(one.store, 2)
    one.store.path_of(broken.outputs[1]).unlink()
    one.send(broken)
    one.send(good)
    one.cache.finish()
    assert set(server.results) == {good.key}
    assert one.cache.counters.uploads_dropped == 1
    (told,) = one.told
    assert str(broken.outputs[1]) in told


def test_what_is_there_is_not_sent_again(tmp_path: Path) -> None:
    server = BatchingMemoryTransport()
    filled(tmp_path / "a", server)
    one = machine(tmp_path / "b", server)
    one.send(made(one.store, 1))
    one.cache.finish()
    assert server.calls["missing"] == 1
    assert server.calls["upload"] + server.calls["upload_many"] == 0
    assert one.cache.counters.bytes_uploaded == 0
