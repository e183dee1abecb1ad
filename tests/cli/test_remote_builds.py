"""Whole commands with a remote cache: what they share and print, and what they never print."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cli.main import main
from tests.cli.conftest import at_eighty_columns
from tests.durations import without_times
from tests.remote import grpc_server, http_server

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]

BUILD_FILE = """\
[workspace]
name = "example"

[[tool]]
name = "sh"
path = "/bin/sh"

[[command]]
name = "one"
tool = ":sh"
inputs = ["name.txt"]
outputs = ["one.txt"]
arguments = ["-c", "read name < $0; echo one $name > $1", "{inputs}", "{outputs}"]

[[command]]
name = "two"
tool = ":sh"
inputs = [":one"]
outputs = ["two.txt"]
arguments = ["-c", "cat $0 $0 > $1", "{inputs}", "{outputs}"]

[[command]]
name = "broken"
tool = ":sh"
inputs = [":one"]
outputs = ["x"]
arguments = ["-c", "exit 3"]
tags = ["manual"]
"""


class Place:
    """A machine of its own: a checkout, a home, a cache."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
        self.folder = folder
        self.root = folder / "workspace"
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.root.mkdir(parents=True)
        (self.root / "BUILD.toml").write_text(BUILD_FILE)
        (self.root / "name.txt").write_text("world\n")
        for path in [self.root, *self.root.iterdir()]:
            os.utime(path, (1_000_000_000, 1_000_000_000))

    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder / "home"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "MLCBUILD_REMOTE_SLOW_LOOKUPS": "wait",
        }

    def build(self, *arguments: str, **variables: str) -> tuple[int, str]:
        """The exit code, and what was said."""
        code, _, said = self.run("build", *(arguments or ("//...",)), **variables)
        return code, said

    def run(self, *arguments: str, **variables: str) -> tuple[int, str, str]:
        """The exit code of a command, and what it wrote to standard output and said."""
        with self._monkeypatch.context() as patch:
            for name, value in {**self.environment(), **variables}.items():
                patch.setenv(name, value)
            patch.chdir(self.root)
            code = main(list(arguments))
            out, said = self._capsys.readouterr()
            return code, out, without_times(said)

    def user(self, remote: str) -> None:
        path = self.folder / "config/mlcbuild/settings.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"[remote]\n{remote}\n")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Callable[[str], Place]:
    return lambda name: Place(tmp_path / name, monkeypatch, capsys)


@pytest.fixture
def server() -> Iterator[http_server.Cache]:
    with http_server.running() as cache:
        yield cache


def results_in(server: http_server.Cache) -> list[str]:
    return [path for path in server.blobs if path.startswith("/ac/")]


def shown(server: http_server.Cache, said: str) -> str:
    """What was said, with the same address and amounts in each run."""
    said = re.sub(r"[0-9a-f]{64}/\d+", "KEY", said.replace(server.address, "http://server"))
    return re.sub(r"(down|up) [\d.]+ k?B", r"\1 N", said)


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


PUBLIC = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="
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
