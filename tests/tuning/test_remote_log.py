"""Records in a remote cache: what two tuners add at once is all there, and what is broken there is passed over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mlcbuild.cache.remote.configuration import RemoteConfiguration, S3Options
from mlcbuild.cache.remote.policy import RemotePolicy, RemoteRole
from mlcbuild.tuning.record import Record
from tests.remote import grpc_server, http_server
from tests.remote.s3_world import World, credentials, world
from tests.remote.seaweed import seaweed
from tests.tuning.logs import BLAKE3, WRITES, log_of
from tests.tuning.recorded import record

__all__ = ["credentials", "seaweed", "world"]  # fixtures


@contextmanager
def _http(_request: pytest.FixtureRequest) -> Iterator[RemoteConfiguration]:
    with http_server.running() as server:
        yield RemoteConfiguration(address=server.address, policy=WRITES)


@contextmanager
def _grpc(_request: pytest.FixtureRequest) -> Iterator[RemoteConfiguration]:
    with grpc_server.running(BLAKE3) as server:
        yield RemoteConfiguration(address=server.address, policy=WRITES)


@contextmanager
def _s3(request: pytest.FixtureRequest) -> Iterator[RemoteConfiguration]:
    world: World = request.getfixturevalue("world")
    settings = S3Options(endpoint=world.server.endpoint)
    yield RemoteConfiguration(address=f"s3://{world.bucket}/{world.prefix}", policy=WRITES, s3=settings)


@pytest.fixture(params=[_http, _grpc, _s3], ids=["http", "grpc", "s3"])
def shared(request: pytest.FixtureRequest) -> Iterator[RemoteConfiguration]:
    """An empty remote cache of each kind."""
    with request.param(request) as configuration:
        yield configuration


def _read(folder: Path, at: str | RemoteConfiguration) -> set[Record]:
    with log_of(folder, at) as log:
        return set(log.read())


def test_what_one_machine_adds_others_read(shared: RemoteConfiguration, tmp_path: Path) -> None:
    first, second = record(), record(seconds=0.25)
    with log_of(tmp_path / "a", shared) as log:
        assert log.read() == ()
        assert log.add([first]) == 1
        assert log.add([first]) == 0, "it is there"
    with log_of(tmp_path / "b", shared) as log:
        assert log.read() == (first,)
        assert log.add([first, second]) == 1
    assert _read(tmp_path / "c", shared) == {first, second}


@pytest.mark.parametrize("shared", [_http, _s3], ids=["http", "s3"], indirect=True)
def test_two_tuners_that_add_at_once_lose_nothing(shared: RemoteConfiguration, tmp_path: Path) -> None:
    """Of caches that keep the first of two that are written at the same moment."""
    given = [record(seconds=0.001 * number) for number in range(1, 13)]

    def add(name: str, part: list[Record]) -> None:
        with log_of(tmp_path / name, shared) as log:
            for each in part:
                log.add([each])

    threads = [threading.Thread(target=add, args=(name, given[start::2])) for start, name in enumerate("ab")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _read(tmp_path / "c", shared) == set(given)


def test_tuners_in_turn_lose_nothing(shared: RemoteConfiguration, tmp_path: Path) -> None:
    given = [record(seconds=0.001 * number) for number in range(1, 5)]
    with log_of(tmp_path / "a", shared) as one, log_of(tmp_path / "b", shared) as other:
        for number, each in enumerate(given):
            assert (one, other)[number % 2].add([each]) == 1
        assert set(one.read()) == set(other.read()) == set(given)


def test_a_segment_that_is_gone_or_damaged_hides_no_other(tmp_path: Path) -> None:
    given = [record(seconds=0.1 * number) for number in range(1, 4)]
    with http_server.running() as server:
        with log_of(tmp_path / "a", server.address) as log:
            for each in given:
                assert log.add([each]) == 1
        first, second, *_ = [path for path in server.blobs if "/ac/" in path]
        del server.blobs[first]
        server.blobs[second] = server.blobs[second][:-20]
        assert len(_read(tmp_path / "b", server.address)) == 1
        with log_of(tmp_path / "a", server.address) as log:
            assert log.add(given) == 2, "whoever has them sends them again"
        assert _read(tmp_path / "c", server.address) == set(given)


def test_who_may_not_write_reads_and_sends_nothing(tmp_path: Path) -> None:
    with http_server.running() as server:
        with log_of(tmp_path / "a", server.address, RemotePolicy(role=RemoteRole.READ)) as log:
            assert log.add([record()]) == 0
        assert not server.blobs
