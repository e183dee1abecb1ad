"""Commands as a user types them: their output and exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlcbuild.cli.main import main
from mlcbuild.cli.output.standard_streams import ReaderLeftError
from mlcbuild.query.expression import FUNCTIONS
from tests.cli.conftest import at_eighty_columns
from tests.cli.small_workspace import enter_small_workspace

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter_small_workspace(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "command", ["", "init", "import", "build", "run", "fetch", "query", "info", "clean", "shutdown", "version"]
)
def test_help(command: str, snapshot: Snapshot, capsys: Capture) -> None:
    assert main([*filter(None, [command]), "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    snapshot(f"help-{command or 'mlcbuild'}", out)


def test_help_of_a_model_package(snapshot: Snapshot, capsys: Capture) -> None:
    from mlcbuild.cli.run.generation_options import parse_generation_options

    assert parse_generation_options("//models:x", ["--help"]) is None
    snapshot("help-generation", capsys.readouterr().out)


def test_without_arguments_help_is_shown(capsys: Capture) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("Usage: mlcbuild [OPTIONS] COMMAND")


def test_help_of_query_tells_of_every_function(capsys: Capture) -> None:
    main(["query", "--help"])
    shown = capsys.readouterr().out
    assert [function.name for function in FUNCTIONS if f"{function.name}(" not in shown] == []


def test_version(capsys: Capture) -> None:
    import mlcbuild

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mlcbuild {mlcbuild.__version__}\n"
    assert main(["version", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["mlcbuild"] == mlcbuild.__version__


@pytest.mark.parametrize(
    "arguments",
    [
        "biuld //x",
        "build",
        "build --keep-goin //x",
        "build --color never //x",
        "build //x -//y",
        "build -j many //x",
        "build -j 0 //x",
        "run //x --prompt hello",
        "query --output yaml //x",
        "--color blue info",
        "info extra",
        "query kind(model",
        "-C nowhere query :all",
    ],
)
def test_errors_on_the_command_line(arguments: str, workspace: Path, snapshot: Snapshot, capsys: Capture) -> None:
    assert main(arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    name = "".join(letter if letter.isalnum() else "-" for letter in arguments).strip("-")
    snapshot(f"usage-{name}", at_eighty_columns(err.replace(str(workspace), "<root>")))


@pytest.mark.usefixtures("eighty_columns")
def test_errors_in_the_workspace_are_reported_together_with_their_places(
    workspace: Path, snapshot: Snapshot, capsys: Capture
) -> None:
    (workspace / "models/BUILD.toml").write_text(
        '[[filegrup]]\nname = "a"\n\n[[filegroup]]\nname = "b"\nsrc = ["//:data"]\n\n'
        '[[filegroup]]\nname = "c"\nsrcs = ["//:dota"]\n'
    )
    assert main(["query", "//models/..."]) == 7
    out, err = capsys.readouterr()
    assert out == ""
    snapshot("workspace-errors", err)
    assert main(["--color", "always", "query", "//models/..."]) == 7
    snapshot("workspace-errors-colour", capsys.readouterr().err)


def test_outside_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["query", "//..."]) == 7
    assert capsys.readouterr().err.startswith(f"error: no workspace at or above {tmp_path}\n  the root of a")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("label", ["query", "//..."]),
        ("label_kind", ["query", "deps(//models:shapes)", "--output", "label_kind"]),
        ("json", ["query", "kind(platform, //...)", "--output", "json"]),
        ("order", ["query", "--order", "deps(//models:shapes) + //:all-data"]),
        ("none", ["query", "kind(model_library, //...)"]),
        ("tree", ["query", "deps(//models:shapes) + //:all-data", "--output", "tree"]),
    ],
)
def test_query(name: str, arguments: list[str], workspace: Path, snapshot: Snapshot, capsys: Capture) -> None:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ("note: nothing was found\n" if name == "none" else "")
    snapshot(f"query-{name}", out)


def test_patterns_are_relative_to_the_directory_one_stands_in(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert main(["-C", "models", "query", ":all"]) == 0
    monkeypatch.chdir(workspace / "models")
    assert main(["query", ":shapes"]) == 0
    assert capsys.readouterr().out == "//models:shapes\n" * 2


def test_clean_removes_outputs_and_state_but_not_logs(workspace: Path) -> None:
    output = workspace / "mlcbuild-out/default/models"
    for path in (output / "a.so", workspace / ".mlcbuild/logs/x.log", workspace / ".mlcbuild/state.json"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    output.chmod(0o555)
    assert main(["clean"]) == 0
    assert not (workspace / "mlcbuild-out").exists()
    assert sorted(path.name for path in (workspace / ".mlcbuild").iterdir()) == ["lock", "logs"]
    assert main(["clean", "--expunge"]) == 0
    assert [path.name for path in (workspace / ".mlcbuild").iterdir()] == ["lock"]
    assert main(["clean", "--expunge"]) == 0
    assert (workspace / "BUILD.toml").exists()


def test_clean_removes_a_link_and_not_what_it_points_to(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/precious").write_text("x")
    (workspace / "mlcbuild-out").symlink_to(tmp_path / "elsewhere")
    assert main(["clean"]) == 0
    assert not (workspace / "mlcbuild-out").is_symlink()
    assert (tmp_path / "elsewhere/precious").exists()


def test_update_writes_pins_and_nothing_else(workspace: Path, capsys: Capture) -> None:
    before = (workspace / "BUILD.toml").read_text()
    pin = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
    assert main(["fetch", "--update", "//models:shapes"]) == 0
    out, err = capsys.readouterr()
    assert out == f"//:data {pin} new\n"
    assert err.endswith("wrote BUILD.toml\n")
    after = (workspace / "BUILD.toml").read_text()
    assert after == before.replace("# of who builds\n", f'# of who builds\nsha256 = "{pin}"\n')
    (workspace.parent / "outside.bin").write_bytes(b"other\n")
    assert main(["fetch", "--update", ":data"]) == 0
    assert capsys.readouterr().out.endswith(f" was {pin}\n")
    (workspace.parent / "outside.bin").unlink()
    assert main(["fetch", "--update", ":data"]) == 48
    assert "this may be retried: " in capsys.readouterr().err


def crash(monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr("mlcbuild.cli.inspection.query.print_query", fail)


def test_a_bug_is_one_message_and_its_traceback_a_file(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    crash(monkeypatch, KeyError("surprise"))
    assert main(["query", "//..."]) == 37
    [file] = (workspace / ".mlcbuild").glob("crash-*.txt")
    assert capsys.readouterr().err == (
        "error: mlcbuild itself failed: KeyError: 'surprise'\n"
        f"  the traceback is in {file}\n"
        "  set MLCBUILD_DEBUG=1 to see it here\n"
        "this may be retried: mlcbuild failed, not your targets\n"
    )
    assert "Traceback" in file.read_text()
    assert "raise failure" in file.read_text()


def test_a_bug_in_a_file_that_is_found_by_listing_is_told_with_its_line(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """As whoever adds a rule, a backend or a toolchain makes them."""
    monkeypatch.setattr("mlcbuild.rules.filegroup.FilesInfo", lambda **_: dict[str, str]()["lane"])
    (workspace / "BUILD.toml").write_text(
        '[workspace]\nname = "w"\n\n[[filegroup]]\nname = "f"\nsrcs = ["BUILD.toml"]\n'
    )
    assert main(["build", ":f"]) == 37
    first = capsys.readouterr().err.splitlines()[0]
    assert re.fullmatch(r"error: mlcbuild itself failed at mlcbuild/rules/filegroup\.py:\d+: KeyError: 'lane'", first)


def test_debugging_shows_the_traceback(workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("MLCBUILD_DEBUG", "1")
    crash(monkeypatch, KeyError("surprise"))
    assert main(["query", "//..."]) == 37
    assert "raise failure" in capsys.readouterr().err
    assert not (workspace / ".mlcbuild").exists()


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        (KeyboardInterrupt(), 8, "interrupted\n"),
        (EOFError("end"), 37, "error: mlcbuild itself failed: EOFError: end\n"),
        (OSError(28, "No space left on device", "/x"), 36, "error: /x: No space left on device\n"),
        (BrokenPipeError(32, "Broken pipe"), 36, "error: Broken pipe\n"),  # of a worker or a server
        (ReaderLeftError(), 0, ""),
    ],
)
def test_whatever_ends_a_command_has_a_code(
    failure: BaseException,
    code: int,
    message: str,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    crash(monkeypatch, failure)
    assert main(["query", "//..."]) == code
    assert capfd.readouterr().err.startswith(message)


def test_a_closed_pipe_is_quiet(workspace: Path) -> None:
    for number in range(400):
        (workspace / f"p{number}").mkdir()
        (workspace / f"p{number}/BUILD.toml").write_text(
            "".join(f'[[filegroup]]\nname = "target-with-a-long-name-{n}"\nsrcs = ["BUILD.toml"]\n' for n in range(9))
        )
    command = f"{sys.executable} -m mlcbuild.cli.main query //... | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=workspace, check=True)
    assert done.stderr == ""
    assert done.stdout == "//:all-data\n0\n"


HEAVY = ("tvm", "tvm_ffi", "ray", "boto3", "botocore", "torch", "numpy", "rich", "asyncio", "pydantic")


@pytest.mark.parametrize(
    "statement",
    [
        "import mlcbuild.cli.main",
        "from mlcbuild.cli.main import main; main(['--help'])",
        "from mlcbuild.cli.main import main; main(['query', '//...', '--output', 'json'])",
        "from mlcbuild.cli.main import main; main(['info'])",
        "import mlcbuild.cli.build.session",
    ],
)
def test_nothing_heavy_is_imported(statement: str, workspace: Path) -> None:
    program = f"import sys\n{statement}\nprint([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("directory", ["nothing", "/".join("a" * 5000), "BUILD.toml"])
@pytest.mark.parametrize("command", ["info", "query //...", "build //..."])
def test_a_directory_that_cannot_be_is_an_error_in_the_command_line(
    directory: str, command: str, workspace: Path, capsys: Capture
) -> None:
    assert main(["-C", directory, *command.split()]) == 2
    assert "is not a directory\n  check the argument of --workspace\n" in capsys.readouterr().err
