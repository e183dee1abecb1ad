"""`mlcbuild cache`: its output, its exit codes, and what it removes."""

from __future__ import annotations

import io
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mlcbuild.cache import file_systems
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cli.main import main
from mlcbuild.cli.output.slow_progress import SlowProgress
from mlcbuild.cli.settings.cache_limits import read_age, read_size
from mlcbuild.cli.settings.user_file import CACHE_SETTINGS, read_user_settings
from mlcbuild.errors import UsageError
from tests.cache.stores import BLAKE3, DAY, base_of, blob_file, check_store, contents, publish, used_at
from tests.cli.conftest import at_eighty_columns

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskStore:
    """The user's own store, on a file system that is called ext4 and has one GB left."""
    mounts = tmp_path / "mounts"
    mounts.write_text("rootfs / ext4 rw 0 0\n")
    monkeypatch.setattr(file_systems, "MOUNTS", mounts)
    monkeypatch.setattr("mlcbuild.cli.cache.stats._free_bytes", lambda _: 1_000_000_000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("MLCBUILD_CACHE_MAX_SIZE", "MLCBUILD_CACHE_MAX_AGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return DiskStore(tmp_path / "cache/mlcbuild", BLAKE3)


def fill(store: DiskStore) -> None:
    """Three results, 100 days, 10 days and a moment old."""
    now = time.time_ns()
    used_at(store, publish(store, "old", files=[b"o" * 300_000, b"shared"], log=b"log"), now - 100 * DAY)
    used_at(store, publish(store, "middle", files=[b"m" * 200_000], directory=[b"inside"]), now - 10 * DAY)
    publish(store, "new", files=[b"n" * 100_000, b"shared"])
    store.put_bytes(b"a source")
    store.release()


def shown(text: str, store: DiskStore) -> str:
    return text.replace(str(store.root), "<cache>")


@pytest.mark.parametrize("command", ["cache", "cache stats", "cache gc", "cache verify", "cache rm"])
def test_help(command: str, snapshot: Snapshot, capsys: Capture) -> None:
    assert main([*command.split(), "--help"]) == 0
    snapshot(f"help-{command.replace(' ', '-')}", capsys.readouterr().out)


@pytest.mark.parametrize(
    "arguments",
    [
        "cache",
        "cache gc --max-size big",
        "cache gc --max-age 3",
        "cache rm",
        "cache rm zz12",
        "cache rm 12",
        "cache rm 1234",
        "cache stats extra",
    ],
)
def test_errors_on_the_command_line(arguments: str, store: DiskStore, snapshot: Snapshot, capsys: Capture) -> None:
    assert main(arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    snapshot(f"usage-{arguments.replace(' ', '-')}", shown(err, store))


def test_stats(store: DiskStore, snapshot: Snapshot, capsys: Capture) -> None:
    fill(store)
    (base_of(store) / "cas/notes.txt").write_text("mine")
    assert main(["cache", "stats", "--max-age", "30d"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    snapshot("cache-stats", shown(out, store))


def test_stats_for_programs(store: DiskStore, capsys: Capture) -> None:
    fill(store)
    assert main(["cache", "stats", "--output", "json", "--max-size", "600k"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kinds"]["results"]["files"] == 3
    assert document["kinds"]["outputs"]["files"] == 5
    assert document["kinds"]["unnamed"]["files"] == 1
    assert document["ages"]["before"]["files"] == 1 + 1 + 1 + 3  # the result, its output, its log, and its own key
    assert document["gc"]["results"] == 1
    assert document["file_system"]["kind"] == "ext4"
    before = document["bytes"]
    assert main(["cache", "gc", "--output", "json", "--max-size", "600k"]) == 0
    collected = json.loads(capsys.readouterr().out)
    assert collected["freed_bytes"] == document["gc"]["bytes"]
    assert collected["kept_bytes"] == before - collected["freed_bytes"] <= 600_000


def test_stats_of_no_cache(store: DiskStore, snapshot: Snapshot, capsys: Capture, tmp_path: Path) -> None:
    for command in ("stats", "gc", "verify"):
        assert main(["cache", command, "--disk-cache", str(tmp_path / "nowhere")]) == 0
    snapshot("cache-nowhere", capsys.readouterr().out.replace(str(tmp_path), "<tmp>"))
    assert not (tmp_path / "nowhere").exists()


def test_stats_on_a_network_file_system(store: DiskStore, tmp_path: Path, snapshot: Snapshot, capsys: Capture) -> None:
    file_systems.MOUNTS.write_text(f"rootfs / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    assert main(["cache", "stats"]) == 0
    snapshot("cache-stats-network", shown(capsys.readouterr().out, store))


def test_gc(store: DiskStore, snapshot: Snapshot, capsys: Capture) -> None:
    fill(store)
    told = []
    for limits in (["--max-age", "30d"], ["--max-age", "30d"], ["--max-size", "0"]):
        assert main(["cache", "gc", *limits]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        told.append(out)
        check_store(base_of(store))
    snapshot("cache-gc", "".join(told))
    assert contents(base_of(store), "ac") == set()
    assert contents(base_of(store), "cas") == {BLAKE3.of_bytes(b"").hash}


def test_gc_says_when_builds_hold_more_than_the_limit(store: DiskStore, snapshot: Snapshot, capsys: Capture) -> None:
    publish(store, "running", files=[b"x" * 100_000])
    assert main(["cache", "gc", "--max-size", "50k"]) == 0
    out, err = capsys.readouterr()
    assert check_store(base_of(store)) == 1
    snapshot("cache-gc-held", out + err)


def test_an_unreadable_store_is_an_error_with_its_file(
    store: DiskStore, snapshot: Snapshot, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)

    def refuse(path: str) -> bytes:
        raise PermissionError(13, "Permission denied", str(store.root / "v1/blake3/ac/00/00"))

    monkeypatch.setattr("mlcbuild.cache.inventory._content", refuse)
    for command in ("gc", "stats", "verify"):
        assert main(["cache", command]) == 36
    snapshot("cache-unreadable", at_eighty_columns(shown(capsys.readouterr().err, store)))


def test_verify(store: DiskStore, snapshot: Snapshot, capsys: Capture) -> None:
    fill(store)
    assert main(["cache", "verify"]) == 0
    good = capsys.readouterr()
    assert good.err == ""
    blob = blob_file(store, BLAKE3.of_bytes(b"n" * 100_000))
    blob.chmod(0o644)
    blob.write_bytes(b"n" * 99_999 + b"x")
    broken = sorted((base_of(store) / "ac").glob("*/*"))[0]
    broken.write_bytes(b"not a result")
    blob_file(store, BLAKE3.of_bytes(b"inside")).unlink()
    assert main(["cache", "verify"]) == 36
    bad = capsys.readouterr()
    snapshot("cache-verify", at_eighty_columns(shown(good.out + bad.out + bad.err, store)))
    assert {path.name for path in (base_of(store) / "corrupt").iterdir()} == {blob.name, f"{broken.name}.result"}
    assert not blob.exists()
    assert not broken.exists()
    assert main(["cache", "verify"]) == 0
    assert main(["cache", "verify", "--output", "json"]) == 0


def test_rm_by_key(store: DiskStore, capsys: Capture) -> None:
    keys = [publish(store, name, files=[name.encode()]) for name in ("a", "b")]
    assert main(["cache", "rm", keys[0].hash[:12]]) == 0
    assert capsys.readouterr().out == "removed 1 result\n"
    assert contents(base_of(store), "ac") == {keys[1].hash}
    assert blob_file(store, BLAKE3.of_bytes(b"a")).exists()
    assert main(["cache", "rm", str(keys[1]), "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == [keys[1].hash]


def test_rm_of_an_ambiguous_key_removes_nothing(store: DiskStore, snapshot: Snapshot, capsys: Capture) -> None:
    for end in "01":
        file = base_of(store) / "ac/ab" / ("ab" + "c" * 61 + end)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"")
    assert main(["cache", "rm", "abcc"]) == 2
    snapshot("cache-rm-ambiguous", capsys.readouterr().err)
    assert len(contents(base_of(store), "ac")) == 2


def test_rm_by_label_makes_the_actions_of_a_target_run_again(
    store: DiskStore, tmp_path: Path, snapshot: Snapshot, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    monkeypatch.chdir(root)
    (root / "BUILD.toml").write_text(
        '[workspace]\nname = "example"\n\n[[tool]]\nname = "sh"\npath = "/bin/sh"\n'
        + "".join(
            f'[[command]]\nname = "{name}"\ntool = ":sh"\noutputs = ["out"]\n'
            f'arguments = ["-c", "echo {name} > $1", "sh", "{{outputs}}"]\n'
            for name in ("x", "xy")
        )
    )
    assert main(["cache", "rm", ":x"]) == 2
    snapshot("cache-rm-unknown", capsys.readouterr().err)
    assert main(["cache", "rm", ":xyz"]) == 7
    snapshot("cache-rm-no-target", capsys.readouterr().err)
    assert main(["build", ":all"]) == 0
    assert main(["cache", "rm", "//:x"]) == 0
    capsys.readouterr()
    assert main(["build", ":all", "--output", "json"]) == 0
    actions = json.loads(capsys.readouterr().out)["actions"]
    assert (actions["executed_local"], actions["up_to_date"]) == (1, 1)


def test_a_build_tells_of_a_cache_on_a_network_file_system_and_goes_on(
    store: DiskStore, tmp_path: Path, snapshot: Snapshot, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_systems.MOUNTS.write_text(f"rootfs / ext4 rw 0 0\nserver:/x {tmp_path}/cache nfs rw 0 0\n")
    root = tmp_path / "workspace"
    root.mkdir()
    monkeypatch.chdir(root)
    (root / "file").write_text("x")
    (root / "BUILD.toml").write_text('[workspace]\nname = "example"\n[[filegroup]]\nname = "a"\nsrcs = ["file"]\n')
    assert main(["build", ":a"]) == 0
    note = capsys.readouterr().err.splitlines()[0]
    snapshot("build-network-cache", at_eighty_columns(shown(note, store)))


def test_limits_may_come_from_variables_and_options_come_first(
    store: DiskStore, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    monkeypatch.setenv("MLCBUILD_CACHE_MAX_AGE", "30d")
    monkeypatch.setenv("MLCBUILD_CACHE_MAX_SIZE", "")
    assert main(["cache", "gc", "--max-age", "200d"]) == 0
    assert capsys.readouterr().out.startswith("nothing to remove")
    assert main(["cache", "gc"]) == 0
    assert capsys.readouterr().out.startswith("removed 1 result, ")
    monkeypatch.setenv("MLCBUILD_CACHE_MAX_SIZE", "much")
    assert main(["cache", "gc"]) == 2
    assert capsys.readouterr().err.startswith('error: MLCBUILD_CACHE_MAX_SIZE: "much" is not a size\n')


def say_in_settings(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config/mlcbuild/settings.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_limits_may_come_from_the_users_settings_and_all_else_comes_first(
    store: DiskStore, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    say_in_settings(tmp_path, '[cache]\nmax_age = "5d"\nmax_size = "50G"\n')
    assert main(["cache", "stats", "--max-age", "200d", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["gc"]["results"] == 0
    monkeypatch.setenv("MLCBUILD_CACHE_MAX_AGE", "30d")
    assert main(["cache", "stats", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["gc"]["results"] == 1
    monkeypatch.delenv("MLCBUILD_CACHE_MAX_AGE")
    assert main(["cache", "stats", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["gc"]["results"] == 2
    say_in_settings(tmp_path, '[cache]\nmax_size = "0"\n')
    assert main(["cache", "gc"]) == 0
    assert contents(base_of(store), "ac") == set()


def test_errors_in_the_users_settings_are_reported_together(
    store: DiskStore, tmp_path: Path, snapshot: Snapshot, capsys: Capture
) -> None:
    say_in_settings(
        tmp_path,
        '[cach]\n[cache]\nmax_size = "much"\nmax_age = 30\nmin_age = "1d"\n[remote]\naddres = "s3://bucket/x"\n',
    )
    assert main(["cache", "stats"]) == 7
    out, err = capsys.readouterr()
    assert "empty" in out  # what the cache holds does not depend on limits
    assert main(["cache", "gc"]) == 7
    assert capsys.readouterr() == ("", err)
    snapshot("cache-settings-errors", at_eighty_columns(err.replace(str(tmp_path), "<tmp>")))


def test_the_page_shows_settings_that_can_be_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/cache.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    say_in_settings(tmp_path, example)
    settings = read_user_settings(tmp_path / "config/mlcbuild/settings.toml")
    assert (settings.max_bytes, settings.max_age_seconds) == (50 * 10**9, 30 * 86_400)
    assert all(f"{setting.name} = " in example for setting in CACHE_SETTINGS)


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("512", 512), ("50G", 50 * 10**9), ("1.5tb", 1_500_000_000_000), ("2GiB", 2 << 30), ("3 Ki", 3072)],
)
def test_sizes(text: str, size: int) -> None:
    assert read_size(text, place="x") == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "5X", "5i", "1e9", "５G"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError):
        read_size(text, place="x")


def test_ages() -> None:
    assert [read_age(text, place="x") for text in ("90s", "1.5h", "30d", "2W")] == [90, 5400, 30 * 86_400, 14 * 86_400]
    for text in ("", "30", "d", "3y", "-1d"):
        with pytest.raises(UsageError):
            read_age(text, place="x")


def test_progress_is_shown_after_a_second_and_at_doublings() -> None:
    now = 0.0
    stream = io.StringIO()
    progress = SlowProgress(stream, live=False, clock=lambda: now)
    for step in range(100):
        now = step / 10
        progress("reading", step, 100)
    progress.close()
    assert (
        stream.getvalue()
        == "reading: 10 % · 1.0 s\nreading: 20 % · 2.0 s\nreading: 40 % · 4.0 s\nreading: 80 % · 8.0 s\n"
    )


def test_progress_on_a_terminal_is_one_line_that_goes(snapshot: Snapshot) -> None:
    now = 0.0
    stream = io.StringIO()
    progress = SlowProgress(stream, live=True, clock=lambda: now)
    for now, total in ((0.5, 0), (1.0, 0), (1.05, 100), (1.2, 100)):  # noqa: B007
        progress("reading", 7, total)
    progress.close()
    snapshot("cache-progress", stream.getvalue())


def test_quick_commands_show_no_progress() -> None:
    stream = io.StringIO()
    progress = SlowProgress(stream, live=True, clock=lambda: 0.0)
    progress("reading", 1, 2)
    progress.close()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("place", ["cas", "ac"])
def test_verify_sees_what_is_no_file_and_gc_removes_it(store: DiskStore, capsys: Capture, place: str) -> None:
    fill(store)
    path = sorted((base_of(store) / place).glob("*/*"))[0]
    path.unlink()
    (path / "deep").mkdir(parents=True)
    pipe = sorted((base_of(store) / place).glob("*/*"))[1]
    pipe.unlink()
    os.mkfifo(pipe)
    fan = base_of(store) / place / "zz"
    fan = next(fan.with_name(name) for name in ("00", "01", "02") if not fan.with_name(name).exists())
    fan.write_text("a file for a folder")
    assert main(["cache", "verify"]) == 36
    said = capsys.readouterr().err
    for each, what in ((path, "a folder"), (pipe, "a pipe"), (fan, "a file")):
        assert f"{each.name}: there is {what} in its place" in said
        assert not each.exists()
    assert main(["cache", "verify"]) == 0
    assert main(["cache", "gc", "--max-age=0s"]) == 0
    assert "could not be removed" not in capsys.readouterr().err
    assert list((base_of(store) / "corrupt").iterdir()) == []


def test_progress_in_one_of_several_stores_names_it(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the same work would begin again at 0 % in the next store."""
    fill(store)
    fill(DiskStore(store.root, DigestFunction.SHA256))
    told: list[tuple[str, int, int]] = []
    monkeypatch.setattr(SlowProgress, "__call__", lambda _self, *shown: told.append(shown))
    for command in ("verify", "stats", "gc"):
        told.clear()
        assert main(["cache", command]) == 0
        for what in {each for each, _, _ in told}:
            shares = [done / total if total else done for each, done, total in told if each == what]
            assert shares == sorted(shares), (command, what)


@pytest.mark.parametrize("option", ["--max-size", "--max-age"])
@pytest.mark.parametrize("text", ["9" * 5000 + "d", "9" * 5000, "999999999w", "1e9d"])
def test_a_limit_that_no_clock_or_disk_has_is_an_error(
    option: str, text: str, store: DiskStore, capsys: Capture
) -> None:
    assert main(["cache", "gc", option, text]) == 2
    assert f'"{text}" is not ' in capsys.readouterr().err
