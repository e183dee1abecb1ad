"""Connecting to a REAPI server: digest functions, addresses, headers and TLS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.remote.grpc import connect
from mlcbuild.cache.remote.settings import Deadlines, ServerSettings
from mlcbuild.cache.remote.transport import ErrorKind
from tests.remote import grpc_server, http_server
from tests.remote.grpc.calls import LARGE, SHA256, TOKEN, calls, error_of
from tests.remote.grpc_server import Server, ending
from tests.remote.moving import downloaded, uploaded

# Connecting


@pytest.mark.parametrize(
    ("offered", "ours", "advice"),
    [
        (SHA256, DigestFunction.BLAKE3, 'digest = "sha256"'),
        (DigestFunction.BLAKE3, SHA256, 'digest = "blake3"'),
    ],
)
def test_another_digest_function_is_an_error_with_advice(
    offered: DigestFunction, ours: DigestFunction, advice: str
) -> None:
    with grpc_server.running(offered) as server:
        error = error_of(lambda: connect(server.address, ours))
        assert error.kind is ErrorKind.UNUSABLE
        assert advice in str(error)
        assert ours.value in error.message


def test_a_wrong_instance_is_refused(server: Server) -> None:
    for address in (server.address.removesuffix("/main"), server.address + "/b"):
        error = error_of(connect, address, SHA256)
        assert error.kind is ErrorKind.DENIED
        assert "check the instance" in str(error)


@pytest.mark.parametrize(
    "address",
    [
        "http://host:1",
        "grpc://host",
        "grpc://:80",
        f"grpcs://me:{TOKEN}@host:443/main",
        f"grpc://host:80/main?token={TOKEN}",
        "grpc://host:80/a/blobs/b",
        "grpc://host:80/a//b",
        "grpc://host:80/a%0ab",
        "grpc://host:99999",
        "grpc://[::1/x",
    ],
)
def test_an_address_that_is_none_is_refused_without_showing_it(address: str) -> None:
    assert error_of(lambda: connect(address, SHA256)).kind is ErrorKind.DENIED


def test_headers_go_with_every_call_and_are_never_shown(server: Server, tmp_path: Path) -> None:
    settings = ServerSettings(headers=(("Authorization", f"Bearer {TOKEN}"), ("X-Team", "compilers")))
    remote = connect(server.address, SHA256, settings)
    for call in calls(remote, tmp_path):
        call()
    assert len(server.metadata) == 8
    for metadata in server.metadata:
        assert metadata["authorization"] == f"Bearer {TOKEN}"
        assert metadata["x-team"] == "compilers"
    server.faults.append(ending(grpc.StatusCode.UNAUTHENTICATED, f"the token {TOKEN} has expired"))
    for call in calls(remote, tmp_path):
        error = error_of(call)
        assert error.kind is ErrorKind.DENIED
        assert "the token … has expired" in error.message
    remote.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Self-signed for 127.0.0.1, with its key in the same file."""
    folder = tmp_path_factory.mktemp("tls")
    options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=cache"
    options += " -addext subjectAltName=IP:127.0.0.1 -keyout both.pem -out certificate.pem"
    subprocess.run(["openssl", "req", *options.split()], cwd=folder, check=True, capture_output=True)
    with (folder / "both.pem").open("ab") as both:
        both.write((folder / "certificate.pem").read_bytes())
    return folder / "both.pem"


def test_tls_with_a_certificate_that_is_trusted(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = certificate.with_name("certificate.pem")
    with grpc_server.running(certificate=certificate) as server:
        remote = connect(server.address, SHA256, ServerSettings(authorities=trusted))
        assert uploaded(remote, LARGE, tmp_path)
        assert downloaded(remote, SHA256.of_bytes(LARGE)) == LARGE
        remote.close()
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        connect(server.address, SHA256).close()


def test_tls_with_a_certificate_that_is_not_trusted_is_refused(certificate: Path, tmp_path: Path) -> None:
    settings = ServerSettings(deadlines=Deadlines(connect=2, idle=2))
    with grpc_server.running(certificate=certificate) as server:
        error = error_of(lambda: connect(server.address, SHA256, settings))
        assert error.kind is ErrorKind.DENIED
        assert "certificates to trust" in str(error)
        absent = ServerSettings(authorities=tmp_path / "absent.pem")
        assert error_of(lambda: connect(server.address, SHA256, absent)).kind is ErrorKind.DENIED


def test_a_port_that_speaks_something_else_is_refused(server: Server) -> None:
    settings = ServerSettings(deadlines=Deadlines(connect=2, idle=2))
    with http_server.running() as web:
        for address in (web.address.replace("http:", "grpc:"), server.address.replace("grpc:", "grpcs:")):
            error = error_of(connect, address, SHA256, settings)
            assert error.kind is ErrorKind.DENIED
            assert "grpc or grpcs" in str(error)


def test_failures_are_raised_and_not_printed(certificate: Path) -> None:
    program = """
import sys
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.remote.grpc import connect
from mlcbuild.cache.remote.transport import TransportError
try:
    connect(sys.argv[1], DigestFunction.SHA256)
except TransportError as error:
    print(error.kind.value)
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    with grpc_server.running(certificate=certificate) as server:
        done = subprocess.run(
            [sys.executable, "-c", program, server.address], capture_output=True, text=True, check=True, env=environment
        )
    assert done.stdout == "denied\n"
    assert done.stderr == ""
