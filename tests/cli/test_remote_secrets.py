"""Puts credentials everywhere that may hold one, and searches for them in everything that a build writes and prints.

They may reach only the server, in the headers of requests.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any

import grpc
import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cli.main import main
from tests.cli.remote_places import Place
from tests.remote import grpc_server, http_server

Capture = pytest.CaptureFixture[str]

USER = "planted-user"
PASSWORD = "planted/pass word+1"
TOKEN = "planted-token-0123456789"
AWS = {
    "AWS_ACCESS_KEY_ID": "PLANTEDACCESSKEYID00",
    "AWS_SECRET_ACCESS_KEY": "planted/aws/secret+0123456789abcdefghij",
    "AWS_SESSION_TOKEN": "planted-session-token==",
    "AWS_DEFAULT_REGION": "us-east-1",
}
FAST = {
    "MLCBUILD_REMOTE_CONNECT_TIMEOUT": "2",
    "MLCBUILD_REMOTE_IDLE_TIMEOUT": "2",
    "MLCBUILD_REMOTE_TIMEOUT": "4",
    "MLCBUILD_REMOTE_ROLE": "read-write",
    "MLCBUILD_REMOTE_HEADERS": f"X-Token: {TOKEN}",
}
QUOTED = urllib.parse.quote(PASSWORD, safe="")
SECRETS = [
    PASSWORD,
    QUOTED,
    base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode(),
    TOKEN,
    *(value for name, value in AWS.items() if name != "AWS_DEFAULT_REGION"),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Place:
    return Place(tmp_path / "place", monkeypatch, capsys)


def with_password(address: str) -> str:
    scheme, _, rest = address.partition("://")
    return f"{scheme}://{USER}:{QUOTED}@{rest}"


def build(place: Place, *arguments: str, **variables: str) -> tuple[int, str]:
    """Build with every report that there is, and look through all that came of it."""
    reports = [f"--{name}={place.folder / name}.json" for name in ("build-report", "profile", "events")]
    code, said = place.build("//...", "//:broken", "--keep-going", *reports, *arguments, **{**FAST, **variables})
    assert not found_in(said.encode())
    for path in place.folder.rglob("*"):
        if path.is_file():
            assert not found_in(path.read_bytes()), path
            assert not found_in(str(path).encode())
    return code, said


def doctor(place: Place, capsys: Capture, monkeypatch: pytest.MonkeyPatch, **variables: str) -> tuple[int, str]:
    """Examine the remote, in text and for programs, and look through all that was said and left."""
    texts = []
    with monkeypatch.context() as patch:
        for name, value in {**place.environment(), **FAST, **variables}.items():
            patch.setenv(name, value)
        patch.chdir(place.root)
        for output in ("text", "json"):
            code = main(["doctor", "workspace", "remote", "signing", f"--output={output}"])
            texts.append("".join(capsys.readouterr()))
    said = "".join(texts)
    assert not found_in(said.encode())
    assert not found_in(b"".join(path.read_bytes() for path in place.folder.rglob("*") if path.is_file()))
    return code, said


def found_in(data: bytes) -> list[str]:
    return [secret for secret in SECRETS if secret.encode() in data]


def test_what_is_looked_for_would_be_found(place: Place) -> None:
    (place.root / "name.txt").write_text(TOKEN)
    with pytest.raises(AssertionError):
        build(place, MLCBUILD_REMOTE="none")


def echo_the_request(handler: http_server.Handler) -> bool:
    handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
    handler.answer(500, str(handler.headers).encode(), {"X-Echo": handler.headers.get("Authorization", "-")})
    return True


HTTP_FAULTS: dict[str, http_server.Fault | None] = {
    "nothing": None,
    "401": http_server.status(401, times=1000),
    "403": http_server.status(403, times=1000),
    "500, with the request in the answer": echo_the_request,
    "reset": http_server.reset,
    "redirect": http_server.status(302, headers={"Location": f"http://{USER}:{QUOTED}@127.0.0.1:9/"}, times=1000),
    "no HTTP": lambda handler: bool(handler.wfile.write(f"220 hello {TOKEN}\r\n".encode())),
}


@pytest.mark.parametrize("fault", HTTP_FAULTS)
def test_http(place: Place, server: http_server.Cache, fault: str) -> None:
    if found := HTTP_FAULTS[fault]:
        server.faults.append(found)
    code, _ = build(place, MLCBUILD_REMOTE=with_password(server.address))
    assert code == 1  # because of //:broken
    # The test is worth nothing unless the credentials were used.
    assert server.log
    assert {asked.headers.get("X-Token") for asked in server.log} == {TOKEN}
    assert {asked.headers.get("Authorization") for asked in server.log} == {f"Basic {SECRETS[2]}"}
    assert not found_in(b"".join(server.blobs.values()))


@pytest.mark.parametrize("fault", HTTP_FAULTS)
def test_a_doctor_over_http(
    place: Place, server: http_server.Cache, fault: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if found := HTTP_FAULTS[fault]:
        server.faults.append(found)
    code, said = doctor(place, capsys, monkeypatch, MLCBUILD_REMOTE=with_password(server.address))
    assert (code == 0) == (found is None)
    assert "header X-Token of the settings, name and password in the address" in said
    assert {asked.headers.get("X-Token") for asked in server.log} == {TOKEN}
    assert {asked.headers.get("Authorization") for asked in server.log} == {f"Basic {SECRETS[2]}"}
    assert not found_in(b"".join(server.blobs.values()))


@pytest.mark.parametrize("status", [200, 403, 500])
def test_a_doctor_over_s3(
    place: Place, server: http_server.Cache, status: int, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if status != 200:
        server.faults.append(http_server.status(status, times=1000))
    address = {"MLCBUILD_REMOTE": "s3://bucket/p", "MLCBUILD_REMOTE_ENDPOINT": server.address}
    _, said = doctor(place, capsys, monkeypatch, **address, **AWS)
    assert "environment variables (AWS_ACCESS_KEY_ID, with a session token)" in said
    assert any("PLANTEDACCESSKEYID00" in asked.headers.get("Authorization", "") for asked in server.log)


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "UNAVAILABLE", "INTERNAL"])
def test_a_doctor_over_grpc(place: Place, code: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(method: str, request: bytes, context: Any) -> bytes | None:
        context.abort(getattr(grpc.StatusCode, code), f"you sent {dict(context.invocation_metadata())}")
        return None

    with grpc_server.running(DigestFunction.BLAKE3) as remote:
        remote.faults.append(refuse)
        answer, said = doctor(place, capsys, monkeypatch, MLCBUILD_REMOTE=remote.address)
        assert answer in (2, 36)
        assert "header X-Token of the settings" in said
        assert remote.log


def test_the_doctor_reports_errors_in_settings(place: Place, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for address in (f"https://{USER}:{PASSWORD}@host", f"s3://{USER}:{QUOTED}@bucket", f"https://host/?token={TOKEN}"):
        assert doctor(place, capsys, monkeypatch, MLCBUILD_REMOTE=address)[0] == 2


def test_a_check_that_breaks_quotes_nothing(
    place: Place, server: http_server.Cache, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlcbuild.cache.remote.http.transport import HttpTransport

    def broken(self: HttpTransport, key: object) -> bytes | None:
        raise RuntimeError(f"a bug, with {self._headers!r}")

    monkeypatch.setattr(HttpTransport, "read_result", broken)
    code, said = doctor(place, capsys, monkeypatch, MLCBUILD_REMOTE=with_password(server.address))
    assert code == 37
    assert "the check itself failed: RuntimeError at test_remote_secrets.py:" in said


def test_an_address_without_a_server(place: Place) -> None:
    for address in (with_password("http://127.0.0.1:9/x"), "grpc://127.0.0.1:9/x"):
        assert build(place, MLCBUILD_REMOTE=address)[0] == 1


def test_an_address_that_is_none(place: Place) -> None:
    for address in (
        f"ftp://{USER}:{QUOTED}@host",
        f"https://{USER}:{PASSWORD}@host",
        f"https://host/?token={TOKEN}",
        f"s3://{USER}:{QUOTED}@bucket",
        f"{USER}:{QUOTED}@host",
    ):
        code, said = build(place, MLCBUILD_REMOTE=address)
        assert (code, "MLCBUILD_REMOTE: " in said) == (2, True)


def test_a_password_on_the_command_line_is_refused_and_written_nowhere(place: Place, server: http_server.Cache) -> None:
    address = with_password(server.address)
    for arguments in (["--remote", address], [f"--remote={address}"]):
        code, said = build(place, *arguments)
        assert code == 2
        assert "--remote holds a name or a password" in said
    assert not server.log


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "PERMISSION_DENIED", "UNAVAILABLE", "INTERNAL", "UNIMPLEMENTED"])
def test_grpc(place: Place, code: str) -> None:
    def refuse(method: str, request: bytes, context: Any) -> bytes | None:
        context.abort(getattr(grpc.StatusCode, code), f"you sent {dict(context.invocation_metadata())}")
        return None

    with grpc_server.running(DigestFunction.BLAKE3) as remote:
        remote.faults.append(refuse)
        assert build(place, MLCBUILD_REMOTE=remote.address)[0] == 1
        assert remote.log


@pytest.mark.parametrize("status", [403, 500])
def test_s3(place: Place, server: http_server.Cache, status: int) -> None:
    server.faults.append(http_server.status(status, times=1000))
    assert build(place, MLCBUILD_REMOTE="s3://bucket/p", MLCBUILD_REMOTE_ENDPOINT=server.address, **AWS)[0] == 1
    assert any("PLANTEDACCESSKEYID00" in asked.headers.get("Authorization", "") for asked in server.log)
    assert any(asked.headers.get("X-Amz-Security-Token") for asked in server.log)


def test_the_users_files(place: Place, server: http_server.Cache, tmp_path: Path) -> None:
    """They hold credentials themselves, and are looked for in nothing but all else."""
    kept = tmp_path / "elsewhere"
    (kept / "mlcbuild").mkdir(parents=True)
    key = kept / "ci.key"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    key_text = key.read_text().splitlines()[1]
    (kept / "mlcbuild/settings.toml").write_text(
        f'[remote]\naddress = "{with_password(server.address)}"\nsigning_key = "../ci.key"\n'
        f'headers = {{ X-Token = "{TOKEN}" }}\n'
    )
    code, _ = build(place, XDG_CONFIG_HOME=str(kept), MLCBUILD_REMOTE_HEADERS="")
    assert code == 1
    assert {asked.headers.get("X-Token") for asked in server.log} == {TOKEN}
    assert b"ResultSignature" in b"".join(server.blobs.values())
    written = [path.read_bytes() for path in place.folder.rglob("*") if path.is_file()]
    assert key_text.encode() not in b"".join([*written, *server.blobs.values()])


def test_a_bug_of_ours(place: Place, server: http_server.Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its traceback is written to a file, and on demand shown."""
    from mlcbuild.cache.remote.http.transport import HttpTransport

    def broken(self: HttpTransport, key: object) -> bytes | None:
        raise RuntimeError(f"a bug, with {self!r} and {self._settings!r} and {self._address!r}")

    monkeypatch.setattr(HttpTransport, "read_result", broken)
    for debug in ("", "1"):
        code, said = build(place, MLCBUILD_REMOTE=with_password(server.address), MLCBUILD_DEBUG=debug)
        assert code == 37
        assert "a bug, with" in said


def test_credentials_are_no_part_of_a_key(place: Place, server: http_server.Cache) -> None:
    keys: list[dict[str, str]] = []
    events = place.folder / "events.json"
    for password, token in (("a", "b"), (QUOTED, TOKEN)):
        address = server.address.replace("://", f"://{USER}:{password}@")
        headers = f"X-Token: {token}"
        place.build("//...", f"--events={events}", MLCBUILD_REMOTE=address, MLCBUILD_REMOTE_HEADERS=headers, **AWS)
        told = [json.loads(line) for line in events.read_text().splitlines()]
        keys.append({event["identifier"]: event["key"] for event in told if event["event"] == "action_finished"})
    assert keys[0] == keys[1]
    assert len(keys[0]) == 2


def test_credentials_are_no_part_of_what_is_a_no_op_record(place: Place, server: http_server.Cache) -> None:
    variables = {"MLCBUILD_REMOTE": with_password(server.address), "MLCBUILD_REMOTE_HEADERS": f"X-Token: {TOKEN}"}
    environment = {**os.environ, **place.environment(), **AWS, **variables}
    command = [sys.executable, "-m", "mlcbuild.cli.main", "build", "//..."]
    records = place.root / ".mlcbuild/no-op"
    for _ in range(2):
        subprocess.run(command, cwd=place.root, env=environment, check=True, capture_output=True)
        time.sleep(2.1)  # Younger files might still be written to.
    assert list(records.iterdir())
    for path in records.iterdir():
        assert not found_in(path.read_bytes())
    # An error in a variable is reported even if there is nothing to do.
    environment["MLCBUILD_REMOTE_ROLE"] = "reed"
    done = subprocess.run(command, cwd=place.root, env=environment, check=False, capture_output=True)
    assert done.returncode == 2


def test_help_shows_nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    for name, value in {"MLCBUILD_REMOTE": with_password("https://host"), **FAST, **AWS}.items():
        monkeypatch.setenv(name, value)
    for command in ("build", "run", "fetch", "info", "doctor"):
        main([command, "--help"])
    assert not found_in(capsys.readouterr().out.encode())
