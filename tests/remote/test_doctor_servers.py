"""`mlcbuild doctor remote` on servers of Bazel's protocols, HTTP and gRPC; and what it says of signatures."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from mlcbuild.cache import wire
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.doctor import remote
from tests.remote import buildgrid, grpc_server, http_server
from tests.remote.doctor_world import Doctor, without_figures

Snapshot = Callable[[str, str], None]
WRITE = "--remote-upload=results"


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Doctor:
    folder = tmp_path / "alone"
    folder.mkdir()
    # How fast things go beside other tests is nobody's concern.
    for name, value in {"BIG_BYTES": 2 << 20, "_SLOW_PACE": 0, "_FAR_SECONDS": 60.0}.items():
        monkeypatch.setattr(remote, name, value)
    return Doctor(folder=folder, monkeypatch=monkeypatch, capsys=capsys)


@pytest.fixture
def server() -> Iterator[http_server.Cache]:
    with http_server.running() as cache:
        yield cache


def test_a_healthy_server(doctor: Doctor, server: http_server.Cache) -> None:
    code, said = doctor.text("remote", "--remote", server.address, WRITE)
    assert code == 0
    assert without_figures(said.replace(server.address, "http://server")).splitlines()[:-2] == [
        "remote http://server",
        "  ok       credentials       none",
        "  ok       lookups           N s each, at most N s; the first one, including its connection, N s",
        "  ok       clock             within N s of ours",
        "  ok       digest function   blake3, which nothing in this protocol tells the server",
        "  ok       blobs             written in N s, found, and read back",
        "  ok       results           written, and read back",
        "  ok       conditions        a conditional write does not replace an existing object",
        "  warning  checksums         the server accepts an upload with a wrong checksum",
        "           readers detect blobs that were damaged in the upload, and build them again",
        "  skipped  parts             this kind of server takes blobs in one part",
        "  ok       throughput        up N MB/s, down and verified N MB/s (N MB)",
        "  ok       retries           none in 15 requests",
        "  ok       left behind       5 blobs and results, N MB: this kind of server cannot remove them; it drops "
        "unused objects",
    ]


def test_what_is_left_is_never_wrong_and_does_not_add_up(doctor: Doctor, server: http_server.Cache) -> None:
    for _ in range(3):
        assert doctor("--remote", server.address, WRITE).code == 0
    for path, content in server.blobs.items():
        if path.startswith("/cas/"):
            assert path == f"/cas/{DigestFunction.BLAKE3.of_bytes(content).hash}"
    # Each time the same, but for a few bytes where the server takes wrong ones.
    assert len([path for path in server.blobs if path.startswith("/cas/")]) == 3 + 3
    assert len([path for path in server.blobs if path.startswith("/ac/")]) == 2


def test_a_server_that_checks_what_it_is_given(doctor: Doctor, server: http_server.Cache) -> None:
    def check(handler: http_server.Handler) -> bool:
        if handler.command != "PUT" or not handler.path.startswith("/cas/"):
            return False
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        is_right = handler.path == f"/cas/{DigestFunction.BLAKE3.of_bytes(body).hash}"
        if is_right:
            server.blobs[handler.path] = body
        handler.answer(200 if is_right else 400)
        return True

    server.faults.append(check)
    said = doctor("--remote", server.address, WRITE)
    assert said.of("warning") == said.of("error") == []
    assert said.verdict("checksums") == "ok"


def test_a_server_that_writes_over_results(doctor: Doctor, server: http_server.Cache) -> None:
    def overwrite(handler: http_server.Handler) -> bool:
        if handler.command != "PUT" or not handler.path.startswith("/ac/"):
            return False
        server.blobs[handler.path] = handler.rfile.read(int(handler.headers["Content-Length"]))
        handler.answer(200)
        return True

    server.faults.append(overwrite)
    said = doctor("--remote", server.address, WRITE)
    assert said.measured("conditions") == "the server ignores If-None-Match"


def test_a_server_of_another_digest_function(doctor: Doctor, server: http_server.Cache) -> None:
    def check(handler: http_server.Handler) -> bool:
        if handler.command != "PUT" or not handler.path.startswith("/cas/"):
            return False
        handler.rfile.read(int(handler.headers["Content-Length"]))
        handler.answer(400)
        return True

    server.faults.append(check)
    said = doctor("--remote", server.address, WRITE)
    assert said.code == 36
    assert said.checks["blobs"]["advice"] == [
        'many servers support only SHA-256: set digest = "sha256" in the [workspace] table'
    ]


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_refuses_us(doctor: Doctor, server: http_server.Cache, status: int) -> None:
    server.faults.append(http_server.status(status, times=1000))
    said = doctor("--remote", server.address, WRITE)
    assert said.code == 2
    assert said.of("error") == ["lookups"]
    assert f"the server answered {status} " in said.measured("lookups")
    # It tells its time all the same.
    assert said.verdict("clock") == "ok"


@pytest.mark.parametrize("fault", ["stall", "reset", "trickle"])
def test_a_server_that_never_comes_to_an_end(doctor: Doctor, server: http_server.Cache, fault: str) -> None:
    def stall(handler: http_server.Handler) -> bool:
        time.sleep(5)
        handler.close_connection = True
        return True

    server.faults.append({"stall": stall, "reset": http_server.reset, "trickle": http_server.trickle_headers}[fault])
    began = time.monotonic()
    said = doctor(
        *("--remote", server.address, WRITE),
        MLCBUILD_REMOTE_TIMEOUT="1",
        MLCBUILD_REMOTE_IDLE_TIMEOUT="1",
        MLCBUILD_REMOTE_MINIMUM_THROUGHPUT="100000000",
    )
    assert time.monotonic() - began < 30
    assert (said.code, said.of("error")) == (36, ["lookups"])


def test_where_credentials_come_from(doctor: Doctor, server: http_server.Cache) -> None:
    address = server.address.replace("://", "://somebody:secret@")
    netrc = doctor.folder / ".netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password secret\n")
    netrc.chmod(0o600)
    for variables, told in (
        ({"MLCBUILD_REMOTE": address}, "name and password in the address"),
        ({"MLCBUILD_REMOTE": server.address}, "name and password in the netrc file"),
        (
            {"MLCBUILD_REMOTE": server.address, "MLCBUILD_REMOTE_HEADERS": "Authorization: Bearer secret"},
            "header Authorization of the settings",
        ),
    ):
        said = doctor(**variables)
        assert said.measured("credentials") == told
        assert "secret" not in str(said)


def test_a_healthy_server_of_the_remote_execution_api(doctor: Doctor) -> None:
    with grpc_server.running(DigestFunction.BLAKE3) as server:
        said = doctor("--remote", server.address, WRITE)
        assert said.code == 0
        assert said.of("skipped") == ["clock", "conditions", "parts"]
        assert said.of("warning") == ["checksums"]  # the server of the tests takes anything
        assert said.measured("digest function") == "blake3, as the server says itself"
        for name, content in server.blobs.items():
            assert name == str(DigestFunction.BLAKE3.of_bytes(content))


def test_a_server_that_names_blobs_by_another_function(doctor: Doctor) -> None:
    with grpc_server.running(DigestFunction.SHA256) as server:
        said = doctor("--remote", server.address, WRITE)
    assert said.code == 2
    assert said.of("error") == ["lookups"]
    assert "does not support blake3, the digest function of this workspace" in said.measured("lookups")
    assert 'set digest = "sha256"' in said.checks["lookups"]["advice"][0]


def test_a_server_that_takes_no_results(doctor: Doctor) -> None:
    def frozen(method: str, request: bytes, context: Any) -> bytes | None:
        if method != "GetCapabilities":
            return None
        cache = wire.bytes_field(1, wire.varint(DigestFunction.BLAKE3.reapi_number)) + wire.bytes_field(2, b"")
        return wire.bytes_field(1, cache)

    with grpc_server.running(DigestFunction.BLAKE3) as server:
        server.faults.append(frozen)
        said = doctor("--remote", server.address, WRITE)
    assert said.code == 2
    assert said.of("error") == ["results"]
    assert "accepts no results from clients" in said.measured("results")


def test_a_token_that_is_refused(doctor: Doctor) -> None:
    with grpc_server.running(DigestFunction.BLAKE3) as server:
        server.faults.append(grpc_server.ending(grpc.StatusCode.UNAUTHENTICATED, "who are you?"))
        said = doctor("--remote", server.address)
    assert said.code == 2
    assert said.checks["lookups"]["advice"] == ["check the token for this cache, and its permissions"]


@pytest.mark.slow
def test_buildgrid(doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that others wrote: it refuses wrong bytes, and the instance `frozen` takes no results."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    (doctor.folder / "BUILD.toml").write_text('[workspace]\nname = "example"\ndigest = "sha256"\n')
    folder = tmp_path / "buildgrid"
    folder.mkdir()
    with buildgrid.running(folder) as address:
        said = doctor("--remote", f"grpc://{address}/main/a", WRITE)
        assert said.code == 0
        assert said.of("warning") == said.of("error") == []
        assert said.measured("checksums") == "an upload with a wrong checksum is rejected"
        assert said.measured("digest function") == "sha256, as the server says itself"
        frozen = doctor("--remote", f"grpc://{address}/frozen", WRITE)
        assert (frozen.code, frozen.of("error")) == (2, ["results"])
        absent = doctor("--remote", f"grpc://{address}/nobodys", WRITE)
        assert (absent.code, absent.of("error")) == (2, ["lookups"])


def test_no_remote_is_nothing_wrong(doctor: Doctor) -> None:
    said = doctor()
    assert said.code == 0
    assert said.of("skipped") == ["configured"]


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"MLCBUILD_REMOTE": "ftp://host"}, "MLCBUILD_REMOTE: the address of a remote cache must begin with"),
        ({"MLCBUILD_REMOTE_ROLE": "reed"}, 'MLCBUILD_REMOTE_ROLE: unknown value "reed"'),
        ({"MLCBUILD_REMOTE": "http://host", "MLCBUILD_REMOTE_TRUSTED_KEYS": "none.pub"}, "MLCBUILD_REMOTE_TRUSTED"),
    ],
)
def test_a_mistake_in_the_settings_is_a_finding(doctor: Doctor, variables: dict[str, str], told: str) -> None:
    said = doctor(**variables)
    assert said.code == 2
    assert said.measured("settings").startswith(told)


# Signatures


class ObjectKeys:
    def __init__(self, folder: Path, name: str) -> None:
        private, public = folder / f"{name}.key", folder / f"{name}.pub"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
        subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
        self.private, self.public = str(private), str(public)
        self.line = public.read_text().splitlines()[1]


def signing(doctor: Doctor, **variables: str) -> tuple[int, list[str]]:
    settings = {f"MLCBUILD_REMOTE_{name.upper()}": value for name, value in variables.items()}
    code, said = doctor.text("signing", MLCBUILD_REMOTE="http://127.0.0.1:9", **settings)
    return code, said.partition("\n\n")[0].splitlines()[1:]


def test_signatures(doctor: Doctor, tmp_path: Path) -> None:
    ours, others = ObjectKeys(tmp_path, "ours"), ObjectKeys(tmp_path, "others")
    writing = {"role": "read-write"}
    assert signing(doctor) == (
        0,
        [
            "  skipped  trusted keys      none: all results of this server are accepted",
            "           to accept only signed results, set trusted_keys",
            "  skipped  our key           nothing is sent, so nothing is signed",
        ],
    )
    assert signing(doctor, trusted_keys=ours.public, signing_key=ours.private, **writing) == (
        0,
        [
            f"  ok       trusted keys      1: {ours.line}",
            f"  ok       our key           signs as {ours.line}, which is trusted",
        ],
    )
    assert signing(doctor, trusted_keys=others.public, signing_key=ours.private, **writing) == (
        2,
        [
            f"  ok       trusted keys      1: {others.line}",
            f"  error    our key           results are signed by {ours.line}, which is not one of the trusted keys",
            "           add it to trusted_keys of the machines that read, or sign with another key",
        ],
    )
    assert signing(doctor, trusted_keys=ours.public, **writing) == (
        0,
        [
            f"  ok       trusted keys      1: {ours.line}",
            "  warning  our key           results are sent unsigned, so machines that trust keys, like this one, do "
            "not accept them",
            "           set signing_key in the user's settings, or MLCBUILD_REMOTE_SIGNING_KEY",
        ],
    )
    # A build that others do not trust has no key, and believes what it sent to a namespace of its own.
    assert signing(doctor, trusted_keys=ours.public, namespace="pull/12", unsigned="namespace", **writing) == (
        0,
        [
            f"  ok       trusted keys      1: {ours.line}; in the namespace pull/12 also unsigned results",
            "  ok       our key           none: results go unsigned to the namespace pull/12, where this machine "
            "accepts unsigned results",
        ],
    )
    assert signing(doctor, trusted_keys=ours.public, namespace="pull/12", **writing)[1][1].startswith(
        "  warning  our key           results are sent unsigned"
    )
    assert signing(doctor, signing_key=ours.private, **writing)[1][-1] == (
        f"  ok       our key           signs as {ours.line}; no keys are trusted here"
    )


def test_a_signing_key_of_another_kind(doctor: Doctor, tmp_path: Path) -> None:
    key = tmp_path / "rsa.key"
    subprocess.run(["openssl", "genpkey", "-algorithm", "rsa", "-out", key], check=True, capture_output=True)
    code, lines = signing(doctor, signing_key=str(key), role="read-write")
    assert code == 2
    assert lines[-2:] == [
        "  error    our key           the signing key is not a private Ed25519 key",
        "           make one: openssl genpkey -algorithm ed25519 -out FILE",
    ]
