"""`mlcbuild cache push` and `pull` move complete results between the disk cache and a remote, and run nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cli.main import main
from tests.cli.cache_transfer.transfers import WRITES, Capture, Snapshot, same
from tests.cli.conftest import at_eighty_columns
from tests.cli.remote_places import Place, results_in
from tests.remote import grpc_server, http_server


@pytest.mark.parametrize("command", ["cache pull", "cache push"])
def test_help(command: str, snapshot: Snapshot, capsys: Capture) -> None:
    assert main([*command.split(), "--help"]) == 0
    snapshot(f"help-{command.replace(' ', '-')}", capsys.readouterr().out)


def test_what_was_pushed_and_pulled_builds_without_a_network(
    place: Callable[[str], Place], server: http_server.Cache, snapshot: Snapshot
) -> None:
    first, second = place("first"), place("second")
    assert first.build("//...")[0] == 0
    told = []
    for _ in range(2):
        code, out, said = first.run("cache", "push", "//...", "--remote", server.address, **WRITES)
        assert (code, said) == (0, "")
        told.append(out)
    assert len(results_in(server)) == 3
    for _ in range(2):
        code, out, said = second.run("cache", "pull", "//...", "--remote", server.address)
        assert (code, said) == (0, "")
        told.append(out)
    snapshot("cache-push-pull", same(server, first, "".join(told)))
    assert not (second.root / "mlcbuild-out").exists()
    asked = len(server.log)
    code, said = second.build("//...", "--no-remote")
    assert code == 0
    assert "3 actions: 3 from disk" in said
    assert len(server.log) == asked
    # What tells how keys were made has come too, so what was pulled can be pushed from here.
    shutil.rmtree(second.root / "mlcbuild-out")
    held = dict(server.blobs)
    server.blobs.clear()
    code, out, said = second.run("cache", "push", "--all", "--remote", server.address, **WRITES)
    assert (code, said) == (0, "")
    assert out.startswith("sent 3 results")
    assert server.blobs == held


def test_a_build_that_fetched_lazily_is_completed_by_a_pull(
    place: Callable[[str], Place], server: http_server.Cache
) -> None:
    first, second = place("first"), place("second")
    first.build("//...", "--remote", server.address, "--remote-upload=results")
    assert second.build("//:two", "--remote", server.address)[0] == 0
    store = DiskStore(second.folder / "cache/mlcbuild", DigestFunction.BLAKE3)
    large = store.function.of_bytes(bytes(200_000))
    code, out, _ = second.run("cache", "pull", "//...", "--remote", server.address, "--output=json", "--jobs=2")
    assert code == 0
    told = json.loads(out)
    assert told["complete"]
    assert not told["missing"]
    assert told["pulled"] >= 1
    assert store.missing([large]) == ()


def test_what_has_no_result_is_named_and_the_rest_comes(
    place: Callable[[str], Place], server: http_server.Cache, snapshot: Snapshot
) -> None:
    first, second = place("first"), place("second")
    first.build("//:folder", "//:mine", "--remote", server.address, "--remote-upload=results")
    server.log.clear()
    code, out, said = second.run("cache", "pull", "//...", "//:mine", "//:broken", "--remote", server.address)
    assert code == 1
    snapshot("cache-pull-incomplete", at_eighty_columns(same(server, second, said + out)))
    assert "PUT" not in server.methods()
    code, out, _ = second.run(
        "cache", "pull", "//...", "//:mine", "//:broken", "--remote", server.address, "--output=json"
    )
    assert code == 1
    snapshot("cache-pull-json", same(server, second, out))
    code, said = second.build("//:folder", "--no-remote")
    assert "2 actions: 2 from disk" in said


def test_actions_behind_one_without_a_result_are_counted(
    place: Callable[[str], Place], server: http_server.Cache
) -> None:
    code, out, said = place("laptop").run("cache", "pull", "//...", "--remote", server.address)
    assert code == 1
    assert out == "0 results already here · a build has to run 1 action, and 2 more that need them\n"
    assert "missing: //:one" in said


def test_a_result_with_missing_blobs_is_missing(place: Callable[[str], Place], server: http_server.Cache) -> None:
    first, second = place("first"), place("second")
    first.build("//:folder", "--remote", server.address, "--remote-upload=results")
    large = DigestFunction.BLAKE3.of_bytes(bytes(200_000))
    del server.blobs[f"/cas/{large.hash}"]
    code, _, said = second.run("cache", "pull", "//:folder", "--remote", server.address)
    assert code == 1
    assert "missing: //:folder Command: a result whose blobs are gone\n" in said
    # Who has them heals that.
    code, _, said = first.run("cache", "push", "//:folder", "--remote", server.address, **WRITES)
    assert (code, said) == (0, "")
    assert second.run("cache", "pull", "//:folder", "--remote", server.address)[0] == 0


def test_a_push_of_targets_that_are_not_built_says_which(
    place: Callable[[str], Place], server: http_server.Cache, snapshot: Snapshot
) -> None:
    first = place("first")
    first.build("//:one", "//:mine")
    code, out, said = first.run("cache", "push", "//...", "//:mine", "--remote", server.address, **WRITES)
    assert code == 1
    snapshot("cache-push-incomplete", at_eighty_columns(same(server, first, said + out)))
    assert len(results_in(server)) == 1, "what is true of this machine only stays here"
    code, out, said = first.run("cache", "push", "//...", "--remote", server.address, "--output=json", **WRITES)
    snapshot("cache-push-json", same(server, first, out))


def test_a_push_sends_what_was_fetched_lazily_no_second_time(
    place: Callable[[str], Place], server: http_server.Cache
) -> None:
    first, second = place("first"), place("second")
    first.build("//...", "--remote", server.address, "--remote-upload=results")
    second.build("//...", "--remote", server.address)
    shutil.rmtree(second.root / "mlcbuild-out")
    # As if only the Tree had come: nobody asked for the folder's files.
    large = DigestFunction.BLAKE3.of_bytes(bytes(200_000))
    path = second.folder / f"cache/mlcbuild/v1/blake3/cas/{large.hash[:2]}/{large.hash}"
    path.unlink()
    code, out, said = second.run("cache", "push", "//...", "--remote", server.address, **WRITES)
    assert (code, out, said) == (0, "3 results already there\n", "")
    with http_server.running() as other:
        code, out, said = second.run("cache", "push", "//...", "--remote", other.address, **WRITES)
        assert code == 1
        assert "1 incomplete on this disk" in out
        assert len(results_in(other)) == 2


def test_over_grpc_the_whole_key_is_known(place: Callable[[str], Place]) -> None:
    first, second = place("first"), place("second")
    for one in (first, second):
        build_file = one.root / "BUILD.toml"
        build_file.write_text(build_file.read_text().replace('"example"', '"example"\ndigest = "sha256"'))
    first.build("//...")
    with grpc_server.running(DigestFunction.SHA256) as remote:
        code, _, said = first.run("cache", "push", "--all", "--remote", remote.address, **WRITES)
        assert (code, said) == (0, "")
        code, _, said = second.run("cache", "pull", "//...", "--remote", remote.address)
        assert (code, said) == (0, "")
    assert "3 from disk" in second.build("//...")[1]
