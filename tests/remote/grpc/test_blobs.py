"""What a REAPI server is asked, by its names, in batches, and within its limits."""

from __future__ import annotations

import os
from pathlib import Path

import grpc
import pytest

from mlcbuild.cache import wire
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.remote import batches
from mlcbuild.cache.remote.grpc import connect
from mlcbuild.cache.remote.grpc.transport import MOST_SENT_BYTES, GrpcTransport
from mlcbuild.cache.remote.transport import ErrorKind
from tests.remote import grpc_server
from tests.remote.grpc.calls import KEY, LARGE, SHA256, SMALL, error_of, stored
from tests.remote.grpc_server import Server, ending
from tests.remote.moving import downloaded, uploaded

# Names, functions and batches


@pytest.mark.parametrize("function", list(DigestFunction))
def test_blobs_and_results_come_back_as_they_went(function: DigestFunction, tmp_path: Path) -> None:
    with grpc_server.running(function) as server:
        remote = connect(server.address, function)
        for content in (b"", SMALL, LARGE):
            digest = function.of_bytes(content)
            assert downloaded(remote, digest) == (None if content else b"")
            assert uploaded(remote, content, tmp_path) == bool(content)
            assert downloaded(remote, digest) == content
            assert remote.missing([digest, digest, KEY]) == (KEY,)
        assert remote.read_result(KEY) is None
        assert remote.write_result(KEY, b"\x20\x00")
        assert not remote.write_result(KEY, b"")
        assert remote.read_result(KEY) == b"\x20\x00"
        remote.close()
        assert remote.address == server.address


def test_blake3_is_named_in_resources_and_requests_and_sha256_is_not(tmp_path: Path) -> None:
    for function, segment, field in ((DigestFunction.BLAKE3, "blake3/", [9]), (SHA256, "", [])):
        with grpc_server.running(function) as server:
            remote = connect(server.address, function)
            digest = function.of_bytes(LARGE)
            uploaded(remote, LARGE, tmp_path)
            downloaded(remote, digest)
            uploaded(remote, SMALL, tmp_path)
            downloaded(remote, function.of_bytes(SMALL))
            remote.missing([digest])
            remote.read_result(KEY)
            remote.write_result(KEY, b"", replace=True)
            remote.close()
            write, read = server.names
            assert read == f"main/blobs/{segment}{digest}"
            assert write.startswith("main/uploads/")
            assert write.endswith(f"/blobs/{segment}{digest}")
            numbers = {
                "FindMissingBlobs": 3,
                "BatchUpdateBlobs": 5,
                "BatchReadBlobs": 4,
                "GetActionResult": 6,
                "UpdateActionResult": 5,
            }
            asked = {method: wire.parse(request) for method, request in server.log}
            assert {method: asked[method].get(number, []) for method, number in numbers.items()} == dict.fromkeys(
                numbers, field
            )


def test_questions_stay_below_the_limit_on_messages(server: Server, remote: GrpcTransport) -> None:
    there = {stored(server, b"%d" % number) for number in range(100)}
    digests = [SHA256.of_bytes(b"%d" % number) for number in range(60_000)]
    assert remote.missing(digests) == tuple(digest for digest in digests if digest not in there)
    assert len(server.log) == 2
    assert all(len(request) <= 4 << 20 for _, request in server.log)


@pytest.mark.parametrize("limit", [0, 300_000])
def test_batches_stay_below_the_limits(limit: int, tmp_path: Path) -> None:
    with grpc_server.running() as server:
        server.most_batched_bytes = limit
        remote = connect(server.address, SHA256)
        server.log.clear()
        contents = [os.urandom(90_000 + number) for number in range(100)]
        files = []
        for content in contents:
            path = tmp_path / SHA256.of_bytes(content).hash
            path.write_bytes(content)
            files.append((SHA256.of_bytes(content), path))
        batches.upload_many(remote, files)
        absent = SHA256.of_bytes(b"absent")
        answers = dict(batches.download_many(remote, [absent, *(digest for digest, _ in files)]))
        assert answers == {SHA256.of_bytes(content): content for content in contents} | {absent: None}
        requests = -(-sum(map(len, contents)) // MOST_SENT_BYTES) if not limit else 34
        assert len(server.log) == 2 * requests
        assert uploaded(remote, os.urandom(300_000), tmp_path)
        assert server.methods()[-1] == ("Write" if limit else "BatchUpdateBlobs")
        with pytest.raises(ValueError, match="larger than"):
            list(remote.download_many([SHA256.of_bytes(LARGE)]))
        remote.close()


def test_a_server_that_has_a_large_blob_says_so_before_its_end(
    server: Server, remote: GrpcTransport, tmp_path: Path
) -> None:
    content = os.urandom(40 << 20)
    assert uploaded(remote, content, tmp_path)
    server.answers_early = True
    assert not uploaded(remote, content, tmp_path)


@pytest.mark.parametrize("limit", [1000, 2 << 20])
def test_a_blob_that_is_too_large_for_the_server_is_not_sent(server: Server, tmp_path: Path, limit: int) -> None:
    server.most_blob_bytes = limit
    remote = connect(server.address, SHA256)
    error = error_of(lambda: uploaded(remote, os.urandom(limit + 1), tmp_path))
    assert error.kind is ErrorKind.ITEM
    assert f"the server accepts at most {limit} bytes" in error.message
    assert uploaded(remote, os.urandom(limit), tmp_path)
    assert not {"Write", "BatchUpdateBlobs"} & set(server.methods()[:-1])
    remote.close()


def test_a_message_that_is_too_large_says_nothing_of_the_rest(server: Server, remote: GrpcTransport) -> None:
    server.faults.append(ending(grpc.StatusCode.RESOURCE_EXHAUSTED, "received message larger than max (5 vs. 4)"))
    assert error_of(lambda: remote.write_result(KEY, b"x", replace=True)).kind is ErrorKind.ITEM
