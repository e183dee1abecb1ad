"""`mlcbuild cache push` and `pull` move complete results between the disk cache and a remote, and run nothing."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.remote.counters import Counters
from mlcbuild.cli.cache.transfer import Silence
from mlcbuild.cli.main import main
from mlcbuild.cli.output.slow_progress import SlowProgress
from tests.cli.conftest import at_eighty_columns
from tests.cli.remote_places import Place, results_in, shown
from tests.remote import grpc_server, http_server
from tests.remote.fault_proxy import Fault, faulty

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]
WRITES = {"MLCBUILD_REMOTE_ROLE": "read-write"}
IMPATIENT = {"MLCBUILD_REMOTE_IDLE_TIMEOUT": "1", "MLCBUILD_REMOTE_TIMEOUT": "1"}

MORE = """
[[command]]
name = "folder"
tool = ":sh"
inputs = [":one"]
outputs = ["folder/"]
arguments = ["-c", "mkdir -p $1/sub; cat $0 > $1/a; head -c 200000 /dev/zero > $1/sub/large", "{inputs}", "{outputs}"]

[[command]]
name = "mine"
tool = ":sh"
inputs = [":one"]
outputs = ["mine.txt"]
arguments = ["-c", "hostname > $1", "{inputs}", "{outputs}"]
cache = "local"
tags = ["manual"]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Callable[[str], Place]:
    def made(name: str) -> Place:
        one = Place(tmp_path / name, monkeypatch, capsys)
        build_file = one.root / "BUILD.toml"
        build_file.write_text(build_file.read_text() + MORE)
        return one

    return made


@pytest.fixture
def server() -> Iterator[http_server.Cache]:
    with http_server.running() as cache:
        yield cache


def same(server: http_server.Cache, place: Place, told: str) -> str:
    told = re.sub(r"[\d.]+ k?B\b", "N", shown(server, told)).replace(str(place.folder), "<folder>")
    return re.sub(r'"bytes": \d+', '"bytes": N', told)


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


def test_a_remote_that_cannot_be_reached_may_be_asked_again_later(place: Callable[[str], Place]) -> None:
    first = place("first")
    nobody = {"MLCBUILD_REMOTE": "http://127.0.0.1:9", "MLCBUILD_REMOTE_CONNECT_TIMEOUT": "1"}
    code, out, said = first.run("cache", "pull", "//...", **nobody)
    assert code == 36
    assert said.endswith("this may be retried: this machine failed, not your targets\n")
    assert "failed; the pull continues with the rest:" in said
    first.build("//...")
    code, out, said = first.run("cache", "push", "//...", **nobody, **WRITES)
    assert code == 36
    assert "3 not sent" in out
    assert "failed; the push continues with the rest:" in said
    assert "the build" not in said


@pytest.mark.slow
def test_a_server_that_falls_silent_ends_a_push(
    place: Callable[[str], Place], server: http_server.Cache, snapshot: Snapshot
) -> None:
    """Within the time that an answer and its repetitions may take, here seconds; what has moved stays."""
    first = place("first")
    first.build("//...")
    first.run("cache", "push", "//:one", "--remote", server.address, **WRITES)
    there = results_in(server)
    with faulty(int(server.address.rpartition(":")[2])) as proxy:
        proxy.faults.append(
            Fault(wanted=lambda asked: "/ac/" in asked.path and asked.path not in there, times=-1, stall=0)
        )
        began = time.monotonic()
        code, out, said = first.run("cache", "push", "//...", "--remote", proxy.endpoint, **WRITES, **IMPATIENT)
        assert time.monotonic() - began < 30
        assert (code, out) == (36, "1 result already there · 2 not sent\n")
        told = said[said.index("error:") :].replace(proxy.endpoint, "http://server")
        snapshot("cache-push-silence", at_eighty_columns(told))
        proxy.faults.clear()
        code, out, said = first.run("cache", "push", "//...", "--remote", proxy.endpoint, **WRITES)
    assert (code, said) == (0, "")
    assert out.startswith("sent 2 results")


@pytest.mark.slow
def test_a_server_that_falls_silent_ends_a_pull(
    place: Callable[[str], Place], server: http_server.Cache, snapshot: Snapshot
) -> None:
    first, second = place("first"), place("second")
    first.build("//...", "--remote", server.address, "--remote-upload=results")
    second.run("cache", "pull", "//:one", "--remote", server.address)
    with faulty(int(server.address.rpartition(":")[2])) as proxy:
        # A byte a second is no silence, and no answer either.
        proxy.faults.append(Fault(wanted=lambda request: "/ac/" in request.path, times=-1, trickle=1.0))
        began = time.monotonic()
        code, out, said = second.run("cache", "pull", "//...", "--remote", proxy.endpoint, **IMPATIENT)
        assert time.monotonic() - began < 60
    assert (code, out) == (36, "1 result already here · a build has to run 2 actions\n")
    told = said[said.index("error:") :].replace(proxy.endpoint, "http://server")
    snapshot("cache-pull-silence", at_eighty_columns(told))


def test_a_server_that_is_slow_is_waited_for(place: Callable[[str], Place], server: http_server.Cache) -> None:
    """Every answer takes a third of the time that is given to one, all together much more."""
    first, second = place("first"), place("second")
    first.build("//...")

    def slowly(_handler: http_server.Handler) -> bool:
        time.sleep(0.3)
        return False

    server.faults.append(slowly)
    began = time.monotonic()
    for one, arguments in ((first, ["push", "//..."]), (second, ["pull", "//..."])):
        code, out, _ = one.run("cache", *arguments, "--remote", server.address, **WRITES, **IMPATIENT)
        assert code == 0
        assert "3 results" in out
    assert time.monotonic() - began > 2


def test_progress_shows_for_how_long_nothing_has_finished() -> None:
    now = [0.0]
    silence = Silence(clock=lambda: now[0])
    told = []
    for seconds, counters, done in (
        (0.0, Counters(), 0),
        (4.0, Counters(), 0),
        (6.4, Counters(), 0),
        (8.0, Counters(retries=1, failures=1), 0),  # To ask again finishes nothing.
        (9.0, Counters(retries=1, blobs_uploaded=1), 0),
        (15.0, Counters(retries=1, blobs_uploaded=1), 0),
        (16.0, Counters(retries=1, blobs_uploaded=1), 1),
    ):
        now[0] = seconds
        told.append(silence.note(counters, done))
    assert told == ["", "", ", nothing finished for 6 s", ", nothing finished for 8 s", "", told[-2], ""]
    assert told[-2] == ", nothing finished for 6 s"


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


def test_progress_of_a_slow_transfer_is_shown(
    place: Callable[[str], Place], server: http_server.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlcbuild.cli.output.slow_progress._QUIET_SECONDS", -1.0)
    first, second = place("first"), place("second")
    first.build("//...")
    _, out, said = first.run("cache", "push", "//...", "--remote", server.address, **WRITES)
    assert re.match(r"(pushing, [\d.]+ k?B: \d+ % · 0.0 s\n)+", said)
    assert out.startswith("sent 3")
    _, out, said = second.run("cache", "pull", "//...", "--remote", server.address)
    assert re.match(r"(pulling, [\d.]+ k?B: \d+( of \d+)? · 0.0 s\n)+", said)
    assert out.startswith("pulled 3")


def test_progress_of_a_pull_counts_and_has_no_percentage(
    place: Callable[[str], Place], server: http_server.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of known actions grows while results are pulled, so a percentage of it would fall."""
    monkeypatch.setattr("mlcbuild.cli.output.slow_progress._QUIET_SECONDS", -1.0)
    monkeypatch.setattr("mlcbuild.engine.result_collector._PROGRESS_SECONDS", 0.001)
    told: list[tuple[int, int]] = []

    def show(_self: SlowProgress, _what: str, done: int, known: int) -> None:
        told.append((done, known))

    monkeypatch.setattr(SlowProgress, "show_counted", show)
    monkeypatch.setattr(SlowProgress, "__call__", lambda *_: pytest.fail("a percentage"))
    _, out, _ = place("second").run("cache", "pull", "//...", "--remote", server.address)
    assert "a build has to run" in out
    assert told
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_counts_of_growing_work_have_no_percentage() -> None:
    stream, now = io.StringIO(), [1.0]
    progress = SlowProgress(stream, live=False, clock=lambda: now[0])
    for done, known in ((0, 10), (9, 10), (9, 1_000), (1_000, 1_000)):
        now[0] *= 10
        progress.show_counted("pulling", done, known)
    shown = [line.partition(" ·")[0] for line in stream.getvalue().splitlines()]
    assert shown == ["pulling: 0 of 10", "pulling: 9 of 10", "pulling: 9 of 1,000", "pulling: 1,000"]
