"""Command lines, roles and signatures: what `mlcbuild cache push` and `pull` may not do."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from tests.cli.cache_transfer.transfers import WRITES, Snapshot
from tests.cli.remote_places import Place, results_in
from tests.remote import http_server


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        pytest.param(["push", "//..."], {}, id="no remote"),
        pytest.param(["pull", "//..."], {"MLCBUILD_REMOTE_ROLE": "none"}, id="no role"),
        pytest.param(["push", "//...", "--remote=http://host"], {}, id="a reader"),
        pytest.param(
            ["push", "--all"],
            {"MLCBUILD_REMOTE": "http://host", **WRITES, "MLCBUILD_REMOTE_UPLOAD": "never"},
            id="never",
        ),
        pytest.param(["push"], {"MLCBUILD_REMOTE": "http://host", **WRITES}, id="nothing"),
        pytest.param(["push", "--all", "//..."], {"MLCBUILD_REMOTE": "http://host", **WRITES}, id="both"),
        pytest.param(["pull"], {}, id="no targets"),
    ],
)
@pytest.mark.usefixtures("eighty_columns")
def test_errors(
    place: Callable[[str], Place],
    arguments: list[str],
    variables: dict[str, str],
    snapshot: Snapshot,
    request: pytest.FixtureRequest,
) -> None:
    code, out, said = place("laptop").run("cache", *arguments, **variables)
    assert (code, out) == (2, "")
    snapshot(f"usage-cache-transfer-{request.node.callspec.id.replace(' ', '-')}", said)


def test_a_workspace_cannot_let_anybody_push(place: Callable[[str], Place], server: http_server.Cache) -> None:
    laptop = place("laptop")
    laptop.build("//...")
    build_file = laptop.root / "BUILD.toml"
    build_file.write_text(f'{build_file.read_text()}\n[remote]\naddress = "{server.address}"\nrole = "read-write"\n')
    code, _, _ = laptop.run("cache", "push", "//...")
    assert code == 2
    assert not server.blobs


def test_a_push_is_signed_and_goes_to_the_namespace(
    place: Callable[[str], Place], server: http_server.Cache, tmp_path: Path
) -> None:
    private, public = tmp_path / "ci.key", tmp_path / "ci.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    ci, laptop = place("ci"), place("laptop")
    ci.build("//...")
    where = {
        "MLCBUILD_REMOTE": server.address,
        "MLCBUILD_REMOTE_TRUSTED_KEYS": str(public),
        "MLCBUILD_REMOTE_NAMESPACE": "release/1",
    }
    # Nobody would believe them.
    code, out, _ = ci.run("cache", "push", "//...", **where, **WRITES)
    assert (code, out) == (1, "0 results already there · 3 not sent: unsigned\n")
    assert not server.blobs
    code, out, _ = ci.run("cache", "push", "//...", **where, **WRITES, MLCBUILD_REMOTE_SIGNING_KEY=str(private))
    assert code == 0
    assert len([path for path in server.blobs if path.startswith("/namespaces/release/1/ac/")]) == 3
    assert all(path.startswith("/namespaces/release/1/") for path in server.blobs)
    code, out, said = laptop.run("cache", "pull", "//...", **where)
    assert (code, said) == (0, "")
    # What came signed can be sent on by somebody without the key.
    with http_server.running() as mirror:
        code, out, said = laptop.run("cache", "push", "--all", **{**where, "MLCBUILD_REMOTE": mirror.address}, **WRITES)
        assert (code, said) == (0, "")
        assert out.startswith("sent 3 results")


def test_all_sends_no_results_that_are_valid_on_this_machine_only(
    place: Callable[[str], Place], server: http_server.Cache
) -> None:
    first = place("first")
    first.build("//:one", "//:mine")
    code, out, said = first.run("cache", "push", "--all", "--remote", server.address, **WRITES)
    assert (code, said) == (0, "")
    assert re.fullmatch(r"sent 1 result, [\d.]+ k?B · 1 not sent: valid on this machine only\n", out)
    assert len(results_in(server)) == 1
    # Where the workspace says otherwise by now, it is sent by name.
    build_file = first.root / "BUILD.toml"
    build_file.write_text(build_file.read_text().replace('cache = "local"\n', ""))
    code, out, said = first.run("cache", "push", "//:mine", "--remote", server.address, **WRITES)
    assert (code, said) == (0, "")
    assert len(results_in(server)) == 2


def test_all_sends_no_incomplete_results(place: Callable[[str], Place], server: http_server.Cache) -> None:
    first = place("first")
    first.build("//...")
    store = DiskStore(first.folder / "cache/mlcbuild", DigestFunction.BLAKE3)
    key = next(iter((store.root / "v1/blake3/ac").glob("*/*")))
    action = store.root / f"v1/blake3/cas/{key.name[:2]}/{key.name}"
    assert store.read(Digest(key.name, action.stat().st_size))
    action.unlink()
    code, out, said = first.run("cache", "push", "--all", "--remote", server.address, **WRITES)
    assert (code, said) == (0, "")
    assert out.startswith("sent 2 results")
    assert out.endswith("· 1 incomplete on this disk\n")
