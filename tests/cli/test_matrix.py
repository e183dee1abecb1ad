"""`mlcbuild matrix`, and `build --shard`: cells, their states, and jobs for continuous integration."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.main import main
from tests.cli.matrix_workspace import enter_matrix_workspace

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]
FIRST = "//:first.txt-1-cpu"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter_matrix_workspace(tmp_path, monkeypatch)


def run(capsys: Capture, *arguments: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert main(list(arguments)) == code
    printed = capsys.readouterr()
    return printed.out, printed.err


def cells(capsys: Capture, *arguments: str) -> dict[str, Any]:
    document = json.loads(run(capsys, "matrix", "//...", "--output=json", *arguments)[0])
    return {cell["label"]: cell for cell in document["cells"]}


def test_a_grid_has_the_state_of_each_cell(workspace: Path, capsys: Capture, snapshot: Snapshot) -> None:
    out, err = run(capsys, "matrix", "//...")
    assert err == ""
    snapshot("matrix-first", out)
    run(capsys, "build", FIRST, "//:first.txt-2-cpu")
    shutil.copy(workspace / "first.txt", workspace / "third.txt")
    (workspace / "pipeline/stages/compile_kernel.py").write_text(
        "def run(*, kernel, compiled):\n    body = kernel.read_text()\n"
        "    assert 'other' not in body, 'cannot compile other'\n    compiled.write_text(body)\n"
    )
    run(capsys, "build", FIRST)
    run(capsys, "build", "//:second.txt-1-cpu", code=1)
    out, _ = run(capsys, "--color=always", "matrix", "//...")
    snapshot("matrix-states", out)
    assert max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in out.splitlines()) <= 80


def test_a_built_cell_is_cached_where_it_was_not_built(workspace: Path, capsys: Capture) -> None:
    run(capsys, "build", FIRST)
    assert cells(capsys)[FIRST]["state"] == "built"
    shutil.rmtree(workspace / ".mlcbuild")
    found = cells(capsys)
    assert found[FIRST]["state"] == "cached"
    assert found[FIRST]["would_run"] == 0
    assert found["//:first.txt-1-turing"]["state"] == "would_run"
    assert found["//:first.txt-1-turing"]["announces_more"]


def test_json_agrees_with_query(workspace: Path, capsys: Capture) -> None:
    asked = {record["label"]: record for record in json.loads(run(capsys, "query", "//...", "--output=json")[0])}
    found = cells(capsys)
    assert set(found) == {label for label, record in asked.items() if record["rule"] == "kernels"}
    for label, cell in found.items():
        assert cell["matrix"] == asked[label]["matrix"]
        assert cell["location"] == asked[label]["location"]


def test_github_gets_one_line_with_a_job_for_each_cell_that_can_be_built(workspace: Path, capsys: Capture) -> None:
    out, _ = run(capsys, "matrix", "//:first*", "--output=github")
    assert out.count("\n") == 1
    entries = json.loads(out)["include"]
    assert [entry["name"] for entry in entries] == [entry["targets"] for entry in entries]
    assert entries[0]["label"] == FIRST
    assert entries[0]["axes"] == {"text": "first.txt", "level": "1", "platform": "cpu"}
    assert entries[2]["axes"]["note"] == "long"


def test_only_cells_that_would_run_become_jobs(workspace: Path, capsys: Capture) -> None:
    run(capsys, "build", "//:first*")
    out, _ = run(capsys, "matrix", "//...", "--would-run", "--output=github")
    assert [entry["label"] for entry in json.loads(out)["include"]] == [
        "//:alone",
        "//:second.txt-1-cpu",
        "//:second.txt-1-turing",
        "//:second.txt-2-cpu",
    ]
    run(capsys, "build", "//...")
    assert run(capsys, "matrix", "//...", "--would-run", "--output=github")[0] == '{"include":[]}\n'
    assert "nothing to build" in run(capsys, "matrix", "//...", "--would-run", "--output=gitlab")[0]


def test_gitlab_gets_a_child_pipeline(workspace: Path, capsys: Capture, snapshot: Snapshot) -> None:
    snapshot("matrix-gitlab", run(capsys, "matrix", "//:first.txt-1-*", "--output=gitlab")[0])
    out, _ = run(capsys, "matrix", "//...", "--shards=2", "--output=gitlab")
    assert '"shard 1/2":' in out
    assert '"shard 2/2":' in out


def test_shards_of_a_build_are_the_whole_and_those_that_matrix_shows(workspace: Path, capsys: Capture) -> None:
    shown = cells(capsys, "--shards=2")
    built: dict[str, int] = {}
    for number in (1, 2):
        report = json.loads(run(capsys, "build", "//...", f"--shard={number}/2", "--output=json")[0])
        assert not built.keys() & report["targets"].keys()
        built |= dict.fromkeys(report["targets"], number)
        assert report["skipped"] == {"//:host": "not compatible with //:turing"}
    everything = json.loads(run(capsys, "build", "//...", "--output=json")[0])
    assert built.keys() == everything["targets"].keys()
    numbers = {label: cell["shard"] for label, cell in shown.items() if cell["shard"]}
    assert numbers == {label: number for label, number in built.items() if label in numbers}


def test_a_build_tells_what_it_skips_and_which_part_it_takes_also_if_there_is_nothing_to_do(
    workspace: Path, capsys: Capture
) -> None:
    for _ in range(2):
        err = run(capsys, "build", "//...", "--shard=1/2")[1].splitlines()
        assert err[0] == "note: 1 target skipped: it cannot be built for its platform (-v tells why)"
        assert re.fullmatch(r"note: shard 1/2: \d of 10 targets, about \d\d% of the work; split [0-9a-f]{8}", err[1])
    told = run(capsys, "build", "//...", "--dry-run", "-v", code=10)[1]
    assert "skipped //:host: not compatible with //:turing\n" in told


def test_a_named_target_that_cannot_be_built_is_an_error(workspace: Path, capsys: Capture) -> None:
    err = run(capsys, "build", "//:host", code=7)[1]
    assert err.startswith("BUILD.toml:20:19: //:host is not compatible with //:turing\n  compatible_with: cpu\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--shard=0/2",), '--shard: "0/2" is not I/N'),
        (("--shard=3/2",), '--shard: "3/2" is not I/N'),
        (("--shard=1/x",), '--shard: "1/x" is not I/N'),
        (("--timings=t.json",), "--timings splits targets into parts: give --shard as well"),
        (("--shard=1/2", "--timings=t.json"), "--timings t.json: No such file or directory"),
    ],
)
def test_wrong_shards_are_errors_of_usage(
    workspace: Path, capsys: Capture, arguments: tuple[str, ...], message: str
) -> None:
    assert run(capsys, "build", "//...", *arguments, code=2)[1].startswith(f"error: {message}")


def test_help_fits_a_terminal(capsys: Capture, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out, _ = run(capsys, "matrix", "--help")
    snapshot("help-matrix", out)
    assert max(map(len, out.splitlines())) <= 80


def test_text_and_json_have_the_parts_of_a_split(workspace: Path, capsys: Capture, snapshot: Snapshot) -> None:
    out, _ = run(capsys, "matrix", "//...", "--shards=2")
    snapshot("matrix-shards", out.partition("announce\n")[2])
    document = json.loads(run(capsys, "matrix", "//...", "--shards=2", "--output=json")[0])
    shards = document["split"]["shards"]
    numbers = {label: shard["shard"] for shard in shards for label in shard["targets"]}
    assert {cell["label"]: cell["shard"] for cell in document["cells"] if cell["shard"]}.items() <= numbers.items()
    assert not document["split"]["has_timings"]


def test_timings_of_several_machines_are_merged(workspace: Path, capsys: Capture, tmp_path: Path) -> None:
    files = [str(tmp_path / f"{name}.json") for name in ("one", "two", "all")]
    for file, pattern in zip(files, ("//:first*", "//:second*"), strict=False):
        cache = f"--disk-cache={tmp_path / Path(file).stem}"
        run(capsys, "build", pattern, cache)
        err = run(capsys, "matrix", "//...", cache, f"--write-timings={file}")[1]
        assert re.fullmatch(r"note: \d targets? not measured here: a build would run actions of them\n", err)
        shutil.rmtree(workspace / ".mlcbuild")
    given = [f"--timings={file}" for file in files[:2]]
    run(capsys, "matrix", "//...", *given, f"--write-timings={files[2]}", f"--disk-cache={tmp_path / 'empty'}")
    one, two, merged = (
        {label for group in json.loads(Path(file).read_text())["groups"] for label in group["targets"]}
        for file in files
    )
    assert one
    assert two
    assert merged == one | two
    err = run(capsys, "build", "//...", "--shard=1/2", f"--timings={files[2]}", "--dry-run", code=10)[1]
    assert re.search(r"note: shard 1/2: \d of 10 targets, about [\d.]+ s of [\d.]+ s; split [0-9a-f]{8}\n", err)
    assert "note: 1 target without timings, estimated: //:alone\n" in err


def test_a_query_lists_the_targets_that_a_build_of_a_shard_takes(workspace: Path, capsys: Capture) -> None:
    split = json.loads(run(capsys, "matrix", "//...", "--shards=3", "--output=json")[0])["split"]
    taken = []
    for number, shard in enumerate(split["shards"], start=1):
        out, err = run(capsys, "query", "//...", "--shard", f"{number}/3")
        assert out.splitlines() == sorted(shard["targets"])
        assert f"shard {number}/3: " in err
        assert split["name"] in err
        taken += out.splitlines()
    assert len(taken) == len(set(taken)) > 5
    assert "//:host" not in taken, "it cannot be built for its platform"
    kernels = run(capsys, "query", "kind(kernels, //...)", "--shard=1/1", "--output=json")[0]
    assert [each["rule"] for each in json.loads(kernels)] == ["kernels"] * len(json.loads(kernels))
    _, err = run(capsys, "query", "//...", "--shard", "4/3", code=2)
    assert err.startswith('error: --shard: "4/3" is not I/N')
    assert run(capsys, "query", "//...", "--timings", "x.json", code=2)[1].startswith("error: --timings is for --shard")


def test_manual_targets_are_in_a_shard_if_the_query_names_them(workspace: Path, capsys: Capture) -> None:
    text = (workspace / "BUILD.toml").read_text()
    (workspace / "BUILD.toml").write_text(f'{text}tags = ["manual"]\n')
    assert "//:alone" in run(capsys, "query", "//...")[0].split()
    assert "//:alone" not in run(capsys, "query", "//...", "--shard=1/1")[0].split()
    assert "//:alone" in run(capsys, "query", "//... + //:alone", "--shard=1/1")[0].split()


def test_cells_may_be_compatible_with_platforms_of_their_own(workspace: Path, capsys: Capture) -> None:
    text = (workspace / "BUILD.toml").read_text()
    entry = 'include = [{ text = "second.txt", compatible_with = ["cuda"] }, '
    (workspace / "BUILD.toml").write_text(text.replace("include = [", entry))
    found = cells(capsys)
    assert found["//:second.txt-1-cpu"]["state"] == "skipped"
    assert found["//:second.txt-1-cpu"]["reason"] == "not compatible with @platforms//:cpu"
    assert {found[label]["state"] for label in ("//:second.txt-1-turing", "//:first.txt-1-cpu")} == {"would_run"}
    _, err = run(capsys, "build", "//:second.txt-1-cpu", code=7)
    assert err.startswith("BUILD.toml:14:53: ")
    assert "//:second.txt-1-cpu is not compatible with @platforms//:cpu" in err
