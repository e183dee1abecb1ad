"""`--progress`, `--quiet` and `--verbose` of whole builds without a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.cli.main import main

Capture = pytest.CaptureFixture[str]
OUTPUT = "mlcbuild-out/default/package/package.txt\n"


def build(capsys: Capture, *options: str) -> tuple[int, str, str]:
    code = main(["build", "//:package", *options])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize("option", ["-q", "--quiet", "--progress=quiet"])
def test_a_quiet_build_prints_its_outputs_alone_whether_or_not_there_is_something_to_do(
    workspace: Path, capsys: Capture, option: str
) -> None:
    assert build(capsys, option) == (0, OUTPUT, "")
    assert build(capsys, option) == (0, OUTPUT, "")


def test_a_quiet_build_tells_a_failure(workspace: Path, capsys: Capture) -> None:
    stage = workspace / "pipeline/stages/link.py"
    stage.write_text(stage.read_text().replace("library.write_text", "raise OSError('no room') #"))
    code, printed, said = build(capsys, "-q")
    assert (code, printed) == (1, "")
    assert "//:model Link failed" in said
    assert "error: //:package was not built" in said
    assert "TARGET" not in said
    assert "6 actions" not in said


def test_a_quiet_build_from_caches_alone_still_lists_what_is_not_cached(workspace: Path, capsys: Capture) -> None:
    assert build(capsys, "-q", "--from-cache-only") == (
        10,
        "",
        "not cached: //:model Partition: never built here\n",
    )


def test_a_plain_build_has_a_table_and_a_verbose_one_also_a_line_for_each_action(
    workspace: Path, capsys: Capture
) -> None:
    _, _, plain = build(capsys, "--progress=plain")
    assert [line.split()[:4] for line in plain.splitlines()[:3]] == [
        ["TARGET", "OUTCOME", "RAN", "CACHED"],
        ["//:model", "needed", "5", "0"],
        ["//:package", "built", "1", "0"],
    ]
    _, _, verbose = build(capsys, "--recache", "-v")
    ran = [line for line in verbose.splitlines() if line.startswith("[")]
    assert len(ran) == 6
    assert "TARGET" in verbose
