"""Calls of a REAPI server by its transport, and the errors that they end with."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.grpc.transport import GrpcTransport
from mlcbuild.cache.remote.settings import Deadlines, ServerSettings
from mlcbuild.cache.remote.transport import TransportError
from tests.remote.grpc_server import Server
from tests.remote.moving import downloaded, uploaded

SHA256 = DigestFunction.SHA256
KEY = SHA256.of_bytes(b"an action")
SMALL, LARGE = b"small", os.urandom(3 << 20)
IMPATIENT = ServerSettings(deadlines=Deadlines(connect=2, idle=0.4, total=0.8, bytes_per_second=1 << 20))
TOKEN = "token-12345"


def stored(server: Server, content: bytes) -> Digest:
    digest = server.function.of_bytes(content)
    server.blobs[str(digest)] = content
    return digest


def error_of(action: Callable[..., object], *arguments: object) -> TransportError:
    with pytest.raises(TransportError) as caught:
        action(*arguments)
    assert TOKEN not in str(caught.value)
    return caught.value


def calls(remote: GrpcTransport, folder: Path) -> list[Callable[[], object]]:
    """One call of each method that the server is asked by."""
    return [
        lambda: remote.missing([KEY]),
        lambda: downloaded(remote, SHA256.of_bytes(SMALL)),
        lambda: downloaded(remote, SHA256.of_bytes(LARGE)),
        lambda: uploaded(remote, SMALL, folder),
        lambda: uploaded(remote, LARGE, folder),
        lambda: remote.read_result(KEY),
        lambda: remote.write_result(KEY, b"", replace=True),
    ]
