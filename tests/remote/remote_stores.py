"""A server in memory, results that a machine has sent to it, and waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mlcbuild.cache.remote.counters import MissReason
from mlcbuild.cache.remote.remote_store import RemoteStore
from mlcbuild.cache.remote.retrying import RetryPolicy
from tests.remote.cache_world import Machine, Made, machine, made, policy
from tests.remote.memory_transport import BatchingMemoryTransport, MemoryTransport


def waiting_for(gate: threading.Event) -> Callable[[str], None]:
    """Calls that wait until the gate opens, and do not fail."""

    def wait(_method: str) -> None:
        assert gate.wait(30)

    return wait


@pytest.fixture(params=[MemoryTransport, BatchingMemoryTransport])
def server(request: pytest.FixtureRequest) -> MemoryTransport:
    return request.param()


def filled(folder: Path, server: MemoryTransport, *numbers: int) -> list[Made]:
    """Results that one machine has sent."""
    one = machine(folder, server)
    sent = [made(one.store, number) for number in numbers or (1,)]
    for each in sent:
        one.send(each)
    one.cache.finish()
    assert one.told == []
    server.calls.clear()
    return sent


def misses(one: Machine) -> dict[MissReason, int]:
    return {reason: count for reason, count in one.cache.counters.misses if count}


def patient(server: MemoryTransport, one: Machine) -> RemoteStore:
    """A cache with a real clock, whose pauses only its end cuts short."""
    retries = RetryPolicy(attempts=5, first=20.0, longest=60.0, total=600.0)
    cache = RemoteStore([server], policy(retries=retries), seed=3)
    cache.start(one.told.append)
    return cache


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
