"""Whole commands over a bucket of a real S3 server: configured by a workspace, written by CI, believed when signed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.remote_places import Place
from tests.remote.s3_world import World

Capture = pytest.CaptureFixture[str]


def test_a_workspace_names_a_bucket_that_ci_writes_and_laptops_read(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    key, public = tmp_path / "ci.key", tmp_path / "ci.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True)
    address = f"s3://{world.bucket}/{world.prefix}"
    ci, laptop = (Place(tmp_path / name, monkeypatch, capsys) for name in ("ci", "laptop"))
    for place in (ci, laptop):
        shutil.copy(public, place.root / "ci.pub")
        build_file = place.root / "BUILD.toml"
        build_file.write_text(
            f'{build_file.read_text()}\n[remote]\naddress = "{address}"\nendpoint = "{world.server.endpoint}"\n'
            'region = "us-east-1"\naddressing = "path"\ntrusted_keys = ["ci.pub"]\n'
        )
    code, said = ci.build("//...", MLCBUILD_REMOTE_ROLE="read-write", MLCBUILD_REMOTE_SIGNING_KEY=key.read_text())
    assert code == 0
    assert f"remote {address}: 2 missed (absent), 2 results sent\n" in said
    held = world.keys()
    code, said = laptop.build("//...")
    assert code == 0
    assert "2 actions: 2 from remote" in said
    assert (laptop.root / "mlcbuild-out/default/two/two.txt").read_text() == "one world\none world\n"
    code, said = laptop.build("//...", "--recache")
    assert code == 0
    assert "2 actions: 2 ran (2 local)" in said
    assert world.keys() == held
    # A namespace is another place, and is read before it.
    shutil.rmtree(ci.folder / "cache")
    code, said = ci.build("//...", "--recache", "--remote-upload=results", MLCBUILD_REMOTE_NAMESPACE="pull/1")
    assert code == 0
    added = world.keys().keys() - held.keys()
    assert added
    assert all(name.startswith("namespaces/pull/1/v1/blake3/") for name in added)
