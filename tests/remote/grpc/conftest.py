"""A REAPI server in memory of each test's own, and a transport to it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mlcbuild.cache.remote.grpc import connect
from mlcbuild.cache.remote.grpc.transport import GrpcTransport
from tests.remote import grpc_server
from tests.remote.grpc.calls import SHA256
from tests.remote.grpc_server import Server


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[Server]:
    with grpc_server.running() as server:
        yield server


@pytest.fixture
def remote(server: Server) -> Iterator[GrpcTransport]:
    transport = connect(server.address, SHA256)
    server.log.clear()
    yield transport
    transport.close()
