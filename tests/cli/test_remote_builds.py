"""Builds that share results through a server: roles, namespaces, salts, signatures."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from mlcbuild.cache.digest import DigestFunction
from tests.cli.conftest import at_eighty_columns
from tests.cli.remote_places import Place, Snapshot, results_in, shown
from tests.remote import http_server


def test_what_one_place_sends_another_finds(
    place: Callable[[str], Place], server: http_server.Cache, snapshot: Snapshot
) -> None:
    ci, laptop = place("ci"), place("laptop")
    code, said = ci.build("//...", "--remote", server.address, "--remote-upload=results")
    assert code == 0
    snapshot("remote-first", shown(server, said))
    assert len(results_in(server)) == 2
    held = dict(server.blobs)
    code, said = laptop.build("//...", MLCBUILD_REMOTE=server.address)
    assert code == 0
    snapshot("remote-second", shown(server, said))
    assert (laptop.root / "mlcbuild-out/default/two/two.txt").read_text() == "one world\none world\n"
    assert server.blobs == held


def test_people_send_nothing_by_default(place: Callable[[str], Place], server: http_server.Cache) -> None:
    laptop = place("laptop")
    code, said = laptop.build("//...", "--remote", server.address)
    assert code == 0
    assert f"remote {server.address}: 2 missed (absent)\n" in said
    assert "PUT" not in server.methods()


def test_always_sends_what_lies_on_the_disk_even_where_nothing_is_to_be_done(
    place: Callable[[str], Place], server: http_server.Cache
) -> None:
    ci = place("ci")
    assert ci.build("//...")[0] == 0
    assert ci.build("//...", MLCBUILD_REMOTE=server.address, MLCBUILD_REMOTE_ROLE="read-write")[0] == 0
    assert not results_in(server)
    for _ in range(2):  # The second one would have nothing to do, were it not for this.
        server.blobs.clear()
        code, _ = ci.build(
            "//...",
            MLCBUILD_REMOTE=server.address,
            MLCBUILD_REMOTE_ROLE="read-write",
            MLCBUILD_REMOTE_UPLOAD="always",
        )
        assert code == 0
        assert len(results_in(server)) == 2


def test_recache_runs_everything_and_writes_over_what_is_there(
    place: Callable[[str], Place], server: http_server.Cache
) -> None:
    ci, laptop = place("ci"), place("laptop")
    writes = ("--remote", server.address, "--remote-upload=results")
    ci.build("//...", *writes)
    right = dict(server.blobs)
    for path in results_in(server):
        server.blobs[path] = b"\x2a\x02\x08\x01"  # of somebody who wrote what he liked
    code, said = ci.build("//...", *writes, "--recache")
    assert code == 0
    assert "2 actions: 2 ran (2 local)" in said
    assert server.blobs.keys() == right.keys()
    code, said = laptop.build("//...", "--remote", server.address)
    assert "2 actions: 2 from remote" in said


def test_a_namespace_is_read_with_what_lies_below_it_and_written_alone(
    place: Callable[[str], Place], server: http_server.Cache
) -> None:
    ci, pull_request = place("ci"), place("pull_request")
    ci.build("//:one", "--remote", server.address, "--remote-upload=results")
    trusted = dict(server.blobs)
    code, said = pull_request.build(
        "//...", "--remote", server.address, "--remote-upload=results", MLCBUILD_REMOTE_NAMESPACE="pull/12"
    )
    assert code == 0
    assert "2 actions: 1 from remote, 1 ran (1 local)" in said
    added = server.blobs.keys() - trusted.keys()
    assert added
    assert all(path.startswith("/namespaces/pull/12/") for path in added)
    assert {path: server.blobs[path] for path in trusted} == trusted


def test_another_salt_finds_nothing(place: Callable[[str], Place], server: http_server.Cache) -> None:
    ci, laptop = place("ci"), place("laptop")
    ci.build("//...", "--remote", server.address, "--remote-upload=results", MLCBUILD_REMOTE_SALT="1")
    assert "2 missed (absent)" in laptop.build("//...", MLCBUILD_REMOTE=server.address)[1]
    shutil.rmtree(laptop.folder / "cache")
    code, said = laptop.build("//...", MLCBUILD_REMOTE=server.address, MLCBUILD_REMOTE_SALT="1")
    assert code == 0
    assert "2 from remote" in said


def test_only_signed_results_are_believed_where_keys_are_named(
    place: Callable[[str], Place], server: http_server.Cache, tmp_path: Path, snapshot: Snapshot
) -> None:
    private, public = tmp_path / "ci.key", tmp_path / "ci.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    stranger, ci, laptop = place("stranger"), place("ci"), place("laptop")
    stranger.build("//...", "--remote", server.address, "--remote-upload=results")
    keys = {"MLCBUILD_REMOTE": server.address, "MLCBUILD_REMOTE_TRUSTED_KEYS": str(public)}
    code, said = laptop.build("//...", **keys)
    assert code == 0
    snapshot("remote-unsigned", at_eighty_columns(shown(server, said)))
    writes = {**keys, "MLCBUILD_REMOTE_ROLE": "read-write", "MLCBUILD_REMOTE_SIGNING_KEY": str(private)}
    code, said = ci.build("//...", **writes)
    assert code == 0
    assert "2 missed (unsigned), 2 results sent" in said
    shutil.rmtree(laptop.folder / "cache")
    code, said = laptop.build("//...", **keys)
    assert code == 0
    assert "2 actions: 2 from remote" in said


def test_the_report_counts_what_the_remote_did(
    place: Callable[[str], Place], server: http_server.Cache, tmp_path: Path
) -> None:
    ci = place("ci")
    report = tmp_path / "report.json"
    ci.build("//...", "--remote", server.address, "--remote-upload=results", f"--build-report={report}")
    told = json.loads(report.read_text())["remote"]
    assert told["addresses"] == [server.address]
    assert (told["hits"], told["results_uploaded"], told["uploads_dropped"]) == (0, 2, 0)
    assert {reason: count for reason, count in told["misses"].items() if count} == {"absent": 2}


def test_fetched_files_come_from_the_remote_too(
    place: Callable[[str], Place], server: http_server.Cache, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.bin"
    outside.write_bytes(b"hello\n")
    pin = DigestFunction.SHA256.of_bytes(b"hello\n").hash
    ci, laptop = place("ci"), place("laptop")
    for one in (ci, laptop):
        build_file = one.root / "BUILD.toml"
        build_file.write_text(
            f'{build_file.read_text()}\n[[local_file]]\nname = "data"\npath = "{outside}"\nsha256 = "{pin}"\n'
        )
    code, _, said = ci.run("fetch", "//...", "--remote", server.address, "--remote-upload=results")
    assert code == 0
    assert "1 result sent" in said
    outside.unlink()
    assert laptop.run("fetch", "//...", "--no-remote")[0] == 48
    code, out, said = laptop.run("fetch", "//...", "--remote", server.address)
    assert (code, out) == (0, "mlcbuild-out/default/data/outside.bin\n")
    assert "1 from remote" in said


def test_a_pull_request_believes_its_own_unsigned_results_and_only_signed_ones_below(
    place: Callable[[str], Place], server: http_server.Cache, tmp_path: Path
) -> None:
    private, public = tmp_path / "ci.key", tmp_path / "ci.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    stranger, ci = place("stranger"), place("ci")
    keys = {"MLCBUILD_REMOTE": server.address, "MLCBUILD_REMOTE_TRUSTED_KEYS": str(public)}
    # Two results below: one that somebody left unsigned, and a signed one.
    stranger.build("//:two", "--remote", server.address, "--remote-upload=results")
    ci.build("//:one", **keys, MLCBUILD_REMOTE_ROLE="read-write", MLCBUILD_REMOTE_SIGNING_KEY=str(private))
    mine = {
        **keys,
        "MLCBUILD_REMOTE_ROLE": "read-write",
        "MLCBUILD_REMOTE_NAMESPACE": "pull/12",
        "MLCBUILD_REMOTE_UNSIGNED": "namespace",
    }
    code, said = place("first-run").build("//...", **mine)
    assert code == 0
    assert "2 actions: 1 from remote, 1 ran (1 local)" in said
    assert "1 missed (unsigned), 1 result sent" in said
    code, said = place("second-run").build("//...", **mine)
    assert code == 0
    assert "2 actions: 2 from remote" in said
    # Who has the namespace and does not say so, and who does not have it, believes none of it.
    for number, other in enumerate(({**mine, "MLCBUILD_REMOTE_UNSIGNED": "refused"}, keys)):
        code, said = place(f"other{number}").build("//...", **other)
        assert code == 0
        assert "2 actions: 1 from remote, 1 ran (1 local)" in said
    # A signature that is wrong is no missing one.
    third = place("third-run")
    (path,) = (path for path in server.blobs if path.startswith("/namespaces/pull/12/ac/"))
    server.blobs[path] = server.blobs[results_in(server)[0]]  # signed, for another key
    code, said = third.build("//...", **mine)
    assert code == 0
    assert "1 ran (1 local)" in said
