"""What a newcomer mistypes: each mistake is told with what was meant, and none passes in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import main
from tests.cli.small_workspace import enter_small_workspace

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter_small_workspace(tmp_path, monkeypatch)


def said(capsys: Capture, *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(arguments) == code
    return capsys.readouterr().err


@pytest.mark.parametrize("command", [("build",), ("build", "--dry-run"), ("explain",), ("matrix",)])
def test_a_wildcard_that_matches_nothing_is_named(capsys: Capture, command: tuple[str, ...]) -> None:
    err = said(capsys, *command, "//:v3", "//models:shape-*")
    assert 'note: no targets match "//models:shape-*"' in err
    assert 'no targets match "' not in said(capsys, *command, "//:v*")


def test_a_wildcard_that_matches_manual_targets_alone_says_so(workspace: Path, capsys: Capture) -> None:
    (workspace / "models/BUILD.toml").write_text('[[filegroup]]\nname = "big"\nsrcs = []\ntags = ["manual"]\n')
    assert 'no targets match "//models:all" but those tagged "manual"' in said(capsys, "build", "//models:all")


def test_nothing_below_a_folder_is_an_error_as_in_bazel(capsys: Capture) -> None:
    assert "no packages below //nowhere" in said(capsys, "build", "//nowhere/...", code=ExitCode.ANALYSIS_FAILED)


def test_bench_of_nothing_is_no_crash(capsys: Capture) -> None:
    assert "there is nothing to measure" in said(capsys, "bench", "//:x*", code=ExitCode.COMMAND_LINE)


@pytest.mark.parametrize(
    ("given", "told"), [("", "the path is empty"), ("BUILD.toml", "BUILD.toml is a file, and not a folder")]
)
def test_a_disk_cache_that_is_none_is_an_error_of_the_command_line(
    workspace: Path, capsys: Capture, given: str, told: str
) -> None:
    err = said(capsys, "build", "//:data", "--disk-cache", given, code=ExitCode.COMMAND_LINE)
    assert f'invalid value for "--disk-cache": {told}' in err
    assert sorted(path.name for path in workspace.iterdir()) == ["BUILD.toml", "models"]


def test_a_query_of_an_unknown_attribute_says_so(capsys: Capture) -> None:
    err = said(capsys, "query", 'attr(cpus, "x86", //...)')
    assert err == 'note: no target here has the attribute "cpus": did you mean "cpu"?\n'
    assert said(capsys, "query", 'attr(cpu, "x86", //...)') == ""
    assert said(capsys, "query", 'attr(cpu, "arm", //...)') == "note: nothing was found\n"


def test_a_misspelt_workspace_table_is_told_where_no_workspace_is_found(workspace: Path, capsys: Capture) -> None:
    (workspace / "BUILD.toml").write_text('[worksapce]\nname = "w"\n')
    err = said(capsys, "build", "//...", code=ExitCode.ANALYSIS_FAILED)
    assert f"{workspace}/BUILD.toml:1 has [worksapce]: did you mean [workspace]?" in err


@pytest.mark.parametrize(
    ("written", "meant"),
    [("[configuraton.x]", "did you mean [configuration]?"), ("[comand]", "did you mean [[command]]?")],
)
def test_a_misspelt_table_is_told_with_the_one_that_was_meant(
    workspace: Path, capsys: Capture, written: str, meant: str
) -> None:
    with (workspace / "BUILD.toml").open("a") as file:
        file.write(f"\n{written}\nname = 'x'\n")
    err = said(capsys, "build", "//...", code=ExitCode.ANALYSIS_FAILED)
    assert meant in err
    assert "pairs of brackets" not in err


def test_a_missing_file_is_told_with_the_file_that_is_there(workspace: Path, capsys: Capture) -> None:
    (workspace / "models/sub").mkdir()
    (workspace / "models/sub/chosen.txt").touch()
    (workspace / "models/BUILD.toml").write_text('[[filegroup]]\nname = "all"\nsrcs = ["sub/chosne.txt", "sbu"]\n')
    err = said(capsys, "build", "//models:all", code=ExitCode.ANALYSIS_FAILED)
    assert 'did you mean "sub/chosen.txt"?' in err
    assert 'did you mean "sub"?' in err


@pytest.mark.parametrize(("word", "meant"), [("kernel", "kernels"), ("stat", "stats"), ("mesure", "measure")])
def test_a_misspelt_command_of_tune_is_no_target(capsys: Capture, word: str, meant: str) -> None:
    err = said(capsys, "tune", word, "//:v3", code=ExitCode.COMMAND_LINE)
    assert err.startswith(f'error: no such command "{word}"\n  did you mean "{meant}"?\n')


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["BUILD.toml"], "BUILD.toml is no library\n  the file of a library ends in .so: lib.so of a package\n"),
        (["models:x"], "models:x is not there\n"),
        (["//:v3", "--batch", "0"], "--batch 0: each number is at least 1\n  for example --batch 1,8\n"),
        (["//:v3", "--svg", "nowhere/x.svg"], "--svg: there is no directory nowhere\n"),
        (["//:v3", "--batch", "x"], "--batch x: not a list of numbers\n"),
    ],
)
def test_what_bench_cannot_measure_is_told_as_what_it_is(capsys: Capture, arguments: list[str], told: str) -> None:
    assert told in said(capsys, "bench", *arguments, code=ExitCode.COMMAND_LINE)


def test_a_name_that_others_begin_with_means_the_first_of_them(workspace: Path, capsys: Capture) -> None:
    with (workspace / "BUILD.toml").open("a") as file:
        file.write('\n[[filegroup]]\nname = "for-x86"\nsrcs = ["@platforms//:x86"]\n')
    assert 'did you mean "x86-64-' in said(capsys, "build", "//:for-x86", code=ExitCode.ANALYSIS_FAILED)
