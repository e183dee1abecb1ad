"""Many small blobs over a transport that has no batches of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote import batches
from mlcbuild.cache.remote.http import connect
from mlcbuild.cache.remote.transport import Transport
from tests.remote import http_server
from tests.remote.http_server import Cache

SHA256 = DigestFunction.SHA256


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cache]:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    with http_server.running() as cache:
        yield cache


@pytest.fixture
def remote(cache: Cache) -> Iterator[Transport]:
    transport = connect(cache.address, SHA256)
    yield transport
    transport.close()


def test_blobs_go_and_come_one_by_one(cache: Cache, remote: Transport, tmp_path: Path) -> None:
    contents = {SHA256.of_bytes(content): content for content in (b"", b"a", b"b" * 1000)}
    files = []
    for digest, content in contents.items():
        (tmp_path / digest.hash).write_bytes(content)
        files.append((digest, tmp_path / digest.hash))
    batches.upload_many(remote, [*files, *files])
    absent = SHA256.of_bytes(b"absent")
    asked = [absent, *contents, *contents]
    assert list(batches.download_many(remote, asked)) == [(absent, None), *contents.items()]
    assert cache.methods() == ["PUT"] * 2 + ["GET"] * 3


def test_what_does_not_fit_in_memory_is_not_taken(cache: Cache, remote: Transport, tmp_path: Path) -> None:
    most = batches.batched_bytes(remote)
    large = Digest("a" * 64, most + 1)
    with pytest.raises(ValueError, match="larger than"):
        list(batches.download_many(remote, [large]))
    with pytest.raises(ValueError, match="larger than"):
        batches.upload_many(remote, [(large, tmp_path)])
    assert not cache.log
