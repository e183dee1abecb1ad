"""Commands that run nothing look results up in a remote cache if they are told to."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable

import pytest

from mlcbuild.cli.main import main
from tests.cli.remote_places import BUILD_FILE, PUBLIC, Capture, Place
from tests.remote import http_server


def test_a_build_from_caches_alone_takes_the_results_of_others_and_lists_what_they_lack(
    place: Callable[[str], Place], server: http_server.Cache
) -> None:
    ci, release = place("ci"), place("release")
    assert ci.build("//...", "--remote", server.address, "--remote-upload=results")[0] == 0
    code, _ = release.build("//...", "--from-cache-only", "--remote", server.address)
    assert code == 0
    assert (release.root / "mlcbuild-out/default/two/two.txt").read_text() == "one world\none world\n"
    code, said = release.build("//...", "//:broken", "--from-cache-only", "--remote", server.address)
    assert code == 10
    assert "not cached: //:broken Command: never built here\n" in said
    assert "3 actions: 2 up to date, 1 not cached" in said


def test_commands_that_only_look_ask_the_remote_if_told_to(
    place: Callable[[str], Place], server: http_server.Cache
) -> None:
    ci, laptop = place("ci"), place("laptop")
    assert ci.build("//...", "--remote", server.address, "--remote-upload=results")[0] == 0
    settings = {"MLCBUILD_REMOTE": server.address}
    for asked, variables in (
        ((), settings),
        (("--ask-remote",), settings),
        (("--remote", server.address), {}),
    ):
        state = "cached" if asked else "would run"
        _, out, _ = laptop.run("aquery", "//:one", *asked, **variables)
        assert f"  state        {state}\n" in out
        _, out, _ = laptop.run("explain", "//:one", *asked, **variables)
        assert out.startswith(f"//:one Command {'is cached' if asked else 'would run'}: the first build here")
    code, _, said = laptop.run("aquery", "//:one", "--ask-remote")
    assert code == 2
    assert said.startswith("error: --ask-remote: the settings name no remote cache\n")


def test_show_looks_results_up_where_it_is_asked_to(place: Callable[[str], Place], server: http_server.Cache) -> None:
    """The result alone comes; the bytes of an output come with the text that is asked for."""
    ci, laptop = place("ci"), place("laptop")
    for each in (ci, laptop):
        command = BUILD_FILE.replace("cat $0 $0 > $1", "seq 100000 > $1")
        (each.root / "BUILD.toml").write_text(command)
    assert ci.build("//:two", "--remote", server.address, "--remote-upload=results")[0] == 0
    (action,) = json.loads(laptop.run("show", "//:two", "Command", "--output=json")[1])["actions"]
    assert (action["state"], action["output_files"]) == ("waits", None)
    for asked, variables in (
        (["--remote", server.address], {}),
        (["--ask-remote"], {"MLCBUILD_REMOTE": server.address}),
    ):
        shutil.rmtree(laptop.folder / "cache", ignore_errors=True)
        code, out, _ = laptop.run("show", "//:two", "Command", "--output=json", *asked, **variables)
        (action,) = json.loads(out)["actions"]
        assert (code, action["state"]) == (0, "cached")
        (output,) = action["output_files"]
        assert (output["path"], output["size_bytes"], output["blob"]) == ("out/two.txt", 588895, None)
        assert "    not in the disk cache\n" in laptop.run("show", "//:two", "Command", *asked, **variables)[1]
        code, out, _ = laptop.run("show", "//:two", "Command", "--ir", *asked, **variables)
        assert (code, len(out)) == (0, 588895)
    code, _, said = laptop.run("show", "//:two", "--build", "1", "--remote", server.address)
    assert (code, said.splitlines()[0]) == (2, "error: --build shows what was recorded here, and asks no remote cache")


def test_diff_compares_with_results_of_a_remote(place: Callable[[str], Place], server: http_server.Cache) -> None:
    ci, laptop = place("ci"), place("laptop")
    for each in ("world", "world again"):
        (ci.root / "name.txt").write_text(f"{each}\n")
        assert ci.build("//:two", "--remote", server.address, "--remote-upload=results")[0] == 0
    for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@example.org commit -qm one"):
        subprocess.run(["git", *command.split()], cwd=laptop.root, check=True)
    (laptop.root / "name.txt").write_text("world again\n")
    asked = ("--remote", server.address)
    compared = json.loads(laptop.run("diff", "//:two", "--since", "HEAD", "--output=json")[1])
    assert compared["counts"] == {**dict.fromkeys(compared["counts"], 0), "differs": 1, "not known": 1}
    compared = json.loads(laptop.run("diff", "//:two", "--since", "HEAD", "--output=json", *asked)[1])
    assert compared["counts"] == {**dict.fromkeys(compared["counts"], 0), "differs": 1, "follows": 1}
    assert [each["has_equal_outputs"] for each in compared["actions"]] == [False, False]
    code, out, _ = laptop.run("diff", "//:two", "--since", "HEAD", "--ir", "--mnemonic=Command", *asked)
    assert code == 0
    assert "-one world" in out
    assert "+one world again" in out
    code, _, said = laptop.run("diff", "--build", "1", "--build", "2", *asked)
    assert (code, said.splitlines()[0]) == (2, "error: recorded builds are compared by what was recorded here")


def test_affected_narrows_by_the_results_of_a_remote(place: Callable[[str], Place], server: http_server.Cache) -> None:
    ci, laptop = place("ci"), place("laptop")
    for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@example.org commit -qm one"):
        subprocess.run(["git", *command.split()], cwd=laptop.root, check=True)
    assert ci.build("//:two", "--remote", server.address, "--remote-upload=results")[0] == 0
    for each in (ci, laptop):
        (each.root / "name.txt").write_text("world\nand a line that nobody reads\n")
    assert ci.build("//:two", "--remote", server.address, "--remote-upload=results")[0] == 0
    assert laptop.run("affected", "--since", "HEAD", "//:two")[1] == "//:two\n"
    assert laptop.run("affected", "--since", "HEAD", "//:two", "--remote", server.address)[1] == ""


def test_a_build_from_caches_alone_waits_for_slow_answers(
    place: Callable[[str], Place], server: http_server.Cache
) -> None:
    ci, release = place("ci"), place("release")
    assert ci.build("//...", "--remote", server.address, "--remote-upload=results")[0] == 0

    def slow(handler: http_server.Handler) -> bool:
        if "/ac/" in handler.path:
            server.faults.clear()
            time.sleep(4)  # A build would run the action after 3 seconds.
        return False

    server.faults.append(slow)
    remote = {"MLCBUILD_REMOTE": server.address, "MLCBUILD_REMOTE_SLOW_LOOKUPS": "race"}
    code, said = release.build("//...", "--from-cache-only", **remote)
    assert code == 0, said
    assert "2 actions: 2 from remote" in said


def test_a_dry_run_counts_what_the_remote_has_and_fetches_no_output(
    place: Callable[[str], Place], server: http_server.Cache
) -> None:
    ci, laptop = place("ci"), place("laptop")
    assert ci.build("//...", "--remote", server.address, "--remote-upload=results")[0] == 0
    server.log.clear()
    code, said = laptop.build("//...", "--dry-run", "--remote", server.address)
    assert (code, said) == (0, "2 actions: 2 cached\n")
    assert server.log
    assert not [asked for asked in server.log if "/cas/" in asked.path]
    assert not (laptop.root / "mlcbuild-out").exists()
    code, said = place("alone").build("//...", "--dry-run")
    assert (code, said) == (10, "2 actions: 1 would run, 1 waiting for these\n")


def test_info_shows_which_remote_holds(place: Callable[[str], Place], capsys: Capture) -> None:
    laptop = place("laptop")
    laptop.user(f'address = "https://me:secret@cache.example/x"\nrole = "read-write"\ntrusted_keys = ["{PUBLIC}"]')
    with pytest.MonkeyPatch.context() as patch:
        for name, value in laptop.environment().items():
            patch.setenv(name, value)
        patch.chdir(laptop.root)
        main(["info"])
        assert "remote          https://cache.example/x (read-write)\n" in capsys.readouterr().out
        main(["info", "--output=json"])
        shown = capsys.readouterr().out
    assert "secret" not in shown
    assert json.loads(shown)["remote"] == {
        "address": "https://cache.example/x",
        "role": "read-write",
        "upload": "results",
        "namespace": "",
        "trusted_keys": [PUBLIC],
        "signs": False,
    }
