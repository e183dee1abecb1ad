"""The gRPC remote against BuildGrid: what it keeps it gives back, and what it refuses is told."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.reapi import ActionResult, ExecutedActionMetadata, OutputFile
from mlcbuild.cache.remote.grpc import connect
from mlcbuild.cache.remote.grpc.transport import GrpcTransport
from mlcbuild.cache.remote.transport import ErrorKind, TransportError
from mlcbuild.cache.wire import bytes_field
from tests.remote import buildgrid
from tests.remote.moving import downloaded

pytestmark = pytest.mark.slow

SHA256 = DigestFunction.SHA256


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with buildgrid.running(tmp_path_factory.mktemp("buildgrid")) as address:
        yield address


@pytest.fixture
def remote(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[GrpcTransport]:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    transport = connect(f"grpc://{server}/main/a", SHA256)
    yield transport
    transport.close()


def file_of(folder: Path, content: bytes) -> tuple[Digest, Path]:
    digest = SHA256.of_bytes(content)
    path = folder / digest.hash
    path.write_bytes(content)
    return digest, path


@pytest.mark.parametrize("size", [0, 1, 1000, (1 << 20), (1 << 20) + 1, 10 << 20])
def test_a_blob_comes_back_as_it_went(remote: GrpcTransport, tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    digest, path = file_of(tmp_path, content)
    assert remote.missing([digest]) == ((digest,) if size else ())
    assert downloaded(remote, digest) == (None if size else b"")
    assert remote.upload(digest, path) == bool(size)
    assert remote.missing([digest]) == ()
    assert downloaded(remote, digest) == content
    remote.upload(digest, path)
    assert downloaded(remote, digest) == content


def test_a_stream_comes_in_pieces(remote: GrpcTransport, tmp_path: Path) -> None:
    digest, path = file_of(tmp_path, os.urandom(10 << 20))
    remote.upload(digest, path)
    sizes: list[int] = []
    assert remote.download(digest, lambda piece: sizes.append(len(piece)))
    assert sum(sizes) == 10 << 20
    assert max(sizes) <= 4 << 20


def test_ten_thousand_digests_are_asked_for_at_once(remote: GrpcTransport, tmp_path: Path) -> None:
    blobs = [file_of(tmp_path, b"there %d" % number) for number in range(50)]
    remote.upload_many(blobs)
    absent = [SHA256.of_bytes(b"absent %d" % number) for number in range(10_000)]
    asked = [*absent[:5000], *(digest for digest, _ in blobs), *absent[5000:]]
    assert remote.missing(asked) == tuple(absent)


def test_many_small_blobs_go_and_come_in_batches(remote: GrpcTransport, tmp_path: Path) -> None:
    contents = [os.urandom(1 + 997 * number % 200_000) for number in range(100)]
    blobs = [file_of(tmp_path, content) for content in contents]
    remote.upload_many([*blobs, file_of(tmp_path, b"")])
    absent = SHA256.of_bytes(b"nowhere")
    answers = dict(remote.download_many([*(digest for digest, _ in blobs), absent, SHA256.of_bytes(b"")]))
    assert answers == {SHA256.of_bytes(content): content for content in (*contents, b"")} | {absent: None}


def test_a_result_is_kept_whole_unless_it_is_replaced(remote: GrpcTransport, tmp_path: Path) -> None:
    key = SHA256.of_bytes(os.urandom(8))
    output, path = file_of(tmp_path, b"an output")
    remote.upload(output, path)
    result = ActionResult(
        output_files=(OutputFile(path="out", digest=output),),
        execution_metadata=ExecutedActionMetadata(worker="w"),
    )
    signed = result.encode() + bytes_field(1000, b"a signature")
    assert remote.read_result(key) is None
    assert remote.write_result(key, signed)
    assert remote.read_result(key) == signed
    other = ActionResult(execution_metadata=ExecutedActionMetadata(worker="other")).encode()
    assert not remote.write_result(key, other)
    assert remote.read_result(key) == signed
    assert remote.write_result(key, other, replace=True)
    assert remote.read_result(key) == other


def test_a_result_whose_blobs_are_not_there_counts_as_absent(remote: GrpcTransport) -> None:
    key, nowhere = SHA256.of_bytes(os.urandom(8)), SHA256.of_bytes(os.urandom(8))
    result = ActionResult(output_files=(OutputFile(path="out", digest=nowhere),)).encode()
    remote.write_result(key, result)
    assert remote.read_result(key) is None


def test_a_file_that_is_not_the_blob_is_refused_by_the_server(remote: GrpcTransport, tmp_path: Path) -> None:
    for size in (100, 2 << 20):
        path = tmp_path / "other"
        path.write_bytes(bytes(size))
        digest = SHA256.of_bytes(bytes(size - 1) + b"x")
        with pytest.raises(TransportError) as caught:
            remote.upload(digest, path)
        assert caught.value.kind is ErrorKind.UNUSABLE
        assert digest.hash in caught.value.message
        assert remote.missing([digest]) == (digest,)


def test_a_wrong_instance_is_told_when_connecting(server: str) -> None:
    for instance in ("", "/elsewhere", "/main"):
        with pytest.raises(TransportError) as caught:
            connect(f"grpc://{server}{instance}", SHA256)
        assert caught.value.kind is ErrorKind.DENIED
        assert "check the instance" in str(caught.value)


def test_a_blake3_workspace_is_told_what_to_set(server: str) -> None:
    with pytest.raises(TransportError) as caught:
        connect(f"grpc://{server}/main/a", DigestFunction.BLAKE3)
    assert caught.value.kind is ErrorKind.UNUSABLE
    assert 'digest = "sha256"' in str(caught.value)


def test_a_server_that_takes_no_results_refuses_them(server: str) -> None:
    remote = connect(f"grpc://{server}/frozen", SHA256)
    with pytest.raises(TransportError) as caught:
        remote.write_result(SHA256.of_bytes(b"key"), b"")
    assert caught.value.kind is ErrorKind.DENIED
    remote.close()


def test_calls_from_many_threads_do_not_mix(remote: GrpcTransport, tmp_path: Path) -> None:
    wrong: list[Digest] = []

    def work(start: int) -> None:
        for number in range(8):
            content = os.urandom(300_000 * (number % 6) + start + 1)
            digest, path = file_of(tmp_path, content)
            remote.upload(digest, path)
            if downloaded(remote, digest) != content:
                wrong.append(digest)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
