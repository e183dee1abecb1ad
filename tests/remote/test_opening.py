"""From a configuration to transports: late, once, each in its place, and under its salt."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.remote.batches import has_batches, upload_many
from mlcbuild.cache.remote.configuration import RemoteConfiguration
from mlcbuild.cache.remote.keys import PublicKey
from mlcbuild.cache.remote.opening import open_remote, open_signatures, open_transports
from mlcbuild.cache.remote.policy import RemotePolicy, RemoteRole, Upload
from mlcbuild.cache.remote.settings import Deadlines, ServerSettings
from mlcbuild.cache.remote.transport import DigestFunctionError, Transport, TransportError
from mlcbuild.errors import MlcbuildError, UsageError, WorkspaceError
from tests.remote import grpc_server, http_server
from tests.remote.test_signing import OURS

BLAKE3, SHA256 = DigestFunction.BLAKE3, DigestFunction.SHA256
KEY = BLAKE3.of_bytes(b"a key")
WRITES = RemotePolicy(role=RemoteRole.READ_WRITE)


def transport(function: DigestFunction = BLAKE3, **fields: object) -> Transport:
    (made,) = open_transports(RemoteConfiguration(**fields), function)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("address", ["s3://bucket/p", "http://127.0.0.1:9/p", "grpc://127.0.0.1:9/p"])
def test_opening_connects_to_nobody(address: str) -> None:
    made = transport(address=address)
    assert (made.address, made.function) == (address, BLAKE3)
    assert has_batches(made) == address.startswith("grpc")
    made.close()


def test_nothing_is_opened_where_nothing_is_read() -> None:
    assert open_remote(RemoteConfiguration(), BLAKE3) is None
    nothing = RemoteConfiguration(address="s3://bucket", policy=RemotePolicy(role=RemoteRole.NONE))
    assert open_remote(nothing, BLAKE3) is None


def test_an_address_is_shown_without_its_password() -> None:
    with http_server.running() as server:
        server.authorization = "Basic dTpw"
        with closing(transport(address=server.address.replace("://", "://u:p@"))) as made:
            assert made.address == server.address
            assert made.write_result(KEY, b"result")
            assert made.read_result(KEY) == b"result"


def test_a_namespace_comes_first_and_what_lies_below_it_after() -> None:
    for address, below in (
        ("s3://bucket", "s3://bucket/namespaces/pull/1"),
        ("https://h:1/a/", "https://h:1/a/namespaces/pull/1"),
        ("grpc://h:1/main", "grpc://h:1/main/namespaces/pull/1"),
    ):
        made = open_transports(RemoteConfiguration(address=address, namespace="pull/1"), BLAKE3)
        assert [place.address.rstrip("/") for place in made] == [below, address.rstrip("/")]


def test_results_of_another_salt_are_elsewhere_and_blobs_are_not(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"blob")
    blob = BLAKE3.of_bytes(b"blob")
    with http_server.running() as server, ExitStack() as opened:
        plain, one, two = (
            opened.enter_context(closing(transport(address=server.address, salt=salt))) for salt in ("", "1", "2")
        )
        one.upload(blob, tmp_path / "blob")
        one.write_result(KEY, b"one")
        assert (plain.read_result(KEY), one.read_result(KEY), two.read_result(KEY)) == (None, b"one", None)
        assert plain.missing([blob]) == two.missing([blob]) == ()
        plain.write_result(KEY, b"plain")
        assert f"/ac/{KEY.hash}" in server.blobs


def test_who_sends_signs_and_everybody_with_keys_checks() -> None:
    made = RemoteConfiguration(
        address="s3://bucket", policy=WRITES, signing_key=OURS, trusted_keys=(PublicKey(raw=bytes(32)),)
    )
    assert (open_signatures(made).signs, open_signatures(made).checks) == (True, True)
    reads = dataclasses.replace(made, policy=RemotePolicy())
    assert (open_signatures(reads).signs, open_signatures(reads).checks) == (False, True)
    never = dataclasses.replace(
        made, policy=RemotePolicy(role=RemoteRole.READ_WRITE, upload=Upload.NEVER), trusted_keys=()
    )
    assert (open_signatures(never).signs, open_signatures(never).checks) == (False, False)


def test_a_server_of_another_function_is_refused_as_whoever_opens_says() -> None:
    with grpc_server.running(SHA256) as server:
        with pytest.raises(WorkspaceError, match="does not support blake3"):
            transport(address=server.address).read_result(KEY)

        def refuse(error: DigestFunctionError) -> MlcbuildError:
            return UsageError(f"MINE: {error.message}", advice=error.advice)

        (made,) = open_transports(RemoteConfiguration(address=server.address), BLAKE3, map_error=refuse)
        with pytest.raises(UsageError, match="MINE: "):
            made.read_result(KEY)
        with closing(transport(SHA256, address=server.address)) as right:
            assert right.read_result(SHA256.of_bytes(b"a key")) is None


def test_a_server_that_comes_up_later_is_connected_to_then(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with closing(transport(address=f"grpc://127.0.0.1:{port}/{grpc_server.MAIN}")) as made:
        assert has_batches(made)
        assert made.batched_bytes == 0
        with pytest.raises(TransportError):
            upload_many(made, [(KEY, tmp_path / "none")])
        with grpc_server.running(BLAKE3, port=port):
            assert made.read_result(KEY) is None
            assert made.batched_bytes > 0


def test_many_that_wait_for_a_server_that_is_silent_wait_once() -> None:
    deadlines = Deadlines(connect=0.5, idle=0.5, total=1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        made = transport(
            address=f"grpc://127.0.0.1:{silent.getsockname()[1]}/x", server=ServerSettings(deadlines=deadlines)
        )
        together = threading.Barrier(8)

        def ask(_: int) -> bool:
            together.wait()
            try:
                made.read_result(KEY)
            except TransportError:
                return True
            return False

        began = time.monotonic()
        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(ask, range(8)))
        assert time.monotonic() - began < 4  # and not eight times a second
