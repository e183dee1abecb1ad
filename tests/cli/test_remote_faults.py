"""A remote cache that is absent, refuses or restarts fails no build, and costs nothing where nothing asks it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from mlcbuild.cache.digest import DigestFunction
from tests.cli.remote_places import PUBLIC, Place, results_in
from tests.remote import grpc_server, http_server


def test_a_remote_that_is_not_there_fails_no_build(place: Callable[[str], Place]) -> None:
    code, said = place("laptop").build(
        "//...", MLCBUILD_REMOTE="http://127.0.0.1:9", MLCBUILD_REMOTE_CONNECT_TIMEOUT="1"
    )
    assert code == 0
    assert "2 actions: 2 ran (2 local)" in said


@pytest.mark.parametrize("address", ["s3://bucket/path", "http://127.0.0.1:9/x", "grpc://127.0.0.1:9/x"])
def test_a_port_that_refuses_is_told_as_the_cause_however_short_the_build(
    place: Callable[[str], Place], address: str
) -> None:
    code, said = place("one").build(
        "//:one",
        f"--remote={address}",
        MLCBUILD_REMOTE_SLOW_LOOKUPS="race",
        MLCBUILD_REMOTE_ENDPOINT="http://127.0.0.1:9" if address.startswith("s3") else "",
        AWS_ACCESS_KEY_ID="x",
        AWS_SECRET_ACCESS_KEY="y",
    )
    assert code == 0
    (told,) = [line for line in said.splitlines() if line.startswith("note: the remote cache")]
    assert "refused" in told or "127.0.0.1:9 cannot be reached" in told
    assert f"remote {address}: 1 missed (failed)" in said


def test_a_server_that_restarts_during_a_build_gets_all_results(
    place: Callable[[str], Place], server: http_server.Cache
) -> None:

    def refused(handler: http_server.Handler) -> bool:
        if len(server.log) > 15:
            return False
        handler.refuse(503)
        return True

    server.faults.append(refused)
    code, said = place("one").build("//...", f"--remote={server.address}", "--remote-upload=results")
    assert code == 0
    assert "failed; the build continues" in said
    assert "2 results sent" in said
    assert "not sent" not in said
    assert len(results_in(server)) == 2


def test_a_server_that_names_blobs_otherwise_ends_the_build_with_advice(place: Callable[[str], Place]) -> None:
    laptop = place("laptop")
    with grpc_server.running(DigestFunction.SHA256) as remote:
        address = remote.address
        code, said = laptop.build("//...", MLCBUILD_REMOTE=address)
        assert code == 2
        assert (
            f"error: MLCBUILD_REMOTE: {address} does not support blake3, the digest function of this workspace\n"
            in said
        )
        assert '  set digest = "sha256" in the [workspace] table of the root BUILD.toml, or use another remote' in said
        build_file = laptop.root / "BUILD.toml"
        build_file.write_text(f'{build_file.read_text()}\n[remote]\naddress = "{address}"\n')
        code, said = laptop.build("//...")
        assert code == 7
        assert said.startswith("BUILD.toml:") or "\nBUILD.toml:" in said
        build_file.write_text(build_file.read_text().replace('"example"', '"example"\ndigest = "sha256"'))
        code, said = laptop.build("//...", "--remote-upload=results")
        assert code == 0
        assert len(remote.results) == 2


@pytest.mark.parametrize("arguments", [["--no-remote"], ["--remote=none"], []])
def test_a_build_without_a_remote_loads_nothing_of_one(place: Callable[[str], Place], arguments: list[str]) -> None:
    loaded = modules_of(place("laptop"), arguments, MLCBUILD_REMOTE="s3://bucket/p" if arguments else "")
    assert not [name for name in loaded if name.startswith("mlcbuild.cache.remote")]
    assert not HEAVY & loaded


@pytest.mark.parametrize("address", ["s3://bucket/p", "http://127.0.0.1:9/p", "grpc://127.0.0.1:9/p"])
def test_a_build_with_nothing_to_do_loads_no_client(place: Callable[[str], Place], address: str) -> None:
    laptop = place("laptop")
    assert laptop.build("//...")[0] == 0
    # Not the short way: a report is wanted.
    arguments = ["--build-report", str(laptop.folder / "report.json")]
    loaded = modules_of(laptop, arguments, MLCBUILD_REMOTE=address, MLCBUILD_REMOTE_TRUSTED_KEYS=PUBLIC)
    assert not HEAVY & loaded
    assert json.loads((laptop.folder / "report.json").read_text())["actions"]["up_to_date"] == 2


HEAVY = {"boto3", "botocore", "grpc", "urllib3", "cryptography", "ssl", "http.client"}


def modules_of(place: Place, arguments: list[str], **variables: str) -> set[str]:
    """The modules that a build of everything has loaded in its own process."""
    program = (
        "import sys\n"
        "from mlcbuild.cli.main import main\n"
        f"assert main(['build', '//...', *{arguments!r}]) == 0\n"
        "print('\\n'.join(sys.modules))\n"
    )
    environment = {**os.environ, **place.environment(), **variables}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=place.root, env=environment, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())
