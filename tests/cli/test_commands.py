"""Commands as a user types them: their output and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlcbuild.cli.main import main
from mlcbuild.cli.output.standard_streams import ReaderLeftError
from mlcbuild.query.expression import FUNCTIONS
from mlcbuild.rules.families import families
from mlcbuild.rules.registry import load_rules
from tests.cli.conftest import at_eighty_columns

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]

BUILD_FILE = """\
[workspace]
name = "example"

[configuration.release]

[[local_file]]
name = "data"
path = "{data}"  # of who builds

[[filegroup]]
name = "all-data"
srcs = [":data"]

[[platform]]
name = "v3"
kind = "cpu"
cpu = "x86-64-v3"
"""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that one stands in, with a fetched file outside of it."""
    (tmp_path / "outside.bin").write_bytes(b"hello\n")
    root = tmp_path / "workspace"
    (root / "models").mkdir(parents=True)
    (root / "BUILD.toml").write_text(BUILD_FILE.replace("{data}", str(tmp_path / "outside.bin")))
    (root / "models/BUILD.toml").write_text('[[filegroup]]\nname = "shapes"\nsrcs = ["//:data"]\n')
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root


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
    assert err == ""
    snapshot(f"query-{name}", out)


def test_patterns_are_relative_to_the_directory_one_stands_in(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert main(["-C", "models", "query", ":all"]) == 0
    monkeypatch.chdir(workspace / "models")
    assert main(["query", ":shapes"]) == 0
    assert capsys.readouterr().out == "//models:shapes\n" * 2


@pytest.mark.usefixtures("cold_workers")
def test_info(workspace: Path, snapshot: Snapshot, capsys: Capture) -> None:
    assert main(["info"]) == 0
    shown = capsys.readouterr().out.replace(str(workspace.parent), "<tmp>")
    changing = ("toolchains", "models", "model types")  # what is installed, and which families there are
    entries = re.split(r"(?m)^(?=\S)", shown)  # an entry has further lines, which are indented
    snapshot("info", "".join(entry for entry in entries if not entry.startswith(changing)))


def test_info_names_the_models_of_every_family(workspace: Path, capsys: Capture) -> None:
    assert main(["info"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for family in families():
        assert family.models in shown
        assert all(model_type in shown for model_type in family.model_types)


def test_info_for_programs(workspace: Path, capsys: Capture) -> None:
    assert main(["info", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["paths"]["workspace"] == str(workspace)
    assert "llama" in document["model_types"]
    assert "q4f32_1" in document["quantizations"]
    assert document["platforms"][0] == {"label": "//:v3", "kind": "cpu"}
    assert {"label": "@platforms//:cuda", "kind": "cuda"} in document["platforms"]
    assert set(document["toolchains"]) == {"ld", "numpy", "nvfatbin", "nvrtc", "python", "triton", "tvm"}
    rules = load_rules(Path(), ())
    assert [rule["name"] for rule in document["rules"]] == sorted(rules)
    for rule in document["rules"]:
        assert [found["name"] for found in rule["attributes"]] == list(rules[rule["name"]].schema.by_name)
        assert all(found["doc"] for found in rule["attributes"])


GOOD = BUILD_FILE
BROKEN: dict[str, tuple[str, str, str]] = {
    # name: what is replaced in the root's file, by what, and the beginning of the error
    "target": (
        "[[platform]]",
        '[[nonsense]]\nname = "q"\n\n[[platform]]',
        'BUILD.toml:{line}:1: unknown rule "nonsense" in //:q',
    ),
    "setting": (
        "[workspace]\n",
        '[workspace]\nouput = "x"\n',
        'BUILD.toml:2:1: unknown setting "ouput" in [workspace]',
    ),
    "rules": ("[workspace]\n", '[workspace]\nrules = ["r.py"]\n', "r.py:1:5: rule file r.py is not valid Python"),
    "remote": (
        "[[platform]]",
        "[remote]\naddress = 3\n\n[[platform]]",
        'BUILD.toml:{line}:11: "address" must be a string',
    ),
    "toml": ("[[platform]]", "= =\n\n[[platform]]", "BUILD.toml:{line}:3: not valid TOML"),
}


def break_workspace(root: Path, how: str) -> str:
    """Put an error into the root's file, and return the beginning of its message."""
    old, new, message = BROKEN[how]
    text = (root / "BUILD.toml").read_text().replace(old, new, 1)
    (root / "BUILD.toml").write_text(text)
    (root / "r.py").write_text("x = (")
    place = text[: text.index(new)].count("\n") + 1
    return message.format(line=place + (how == "remote"))


@pytest.mark.parametrize("how", BROKEN)
def test_info_of_a_broken_workspace_answers_what_it_can(workspace: Path, how: str, capsys: Capture) -> None:
    told = break_workspace(workspace, how)
    assert main(["info"]) == 7
    out, err = capsys.readouterr()
    assert err.startswith(told)
    rows = {line[:16].strip(): line[16:] for line in out.splitlines()}
    assert rows["workspace"] == str(workspace)
    assert rows["state"] == str(workspace / ".mlcbuild")
    assert {"disk cache", "quantizations", "toolchains", "rules"} <= set(rows)
    assert ("//:v3" in rows["platforms"].split(", ")) == (how != "toml")
    assert "@platforms//:cpu" in rows["platforms"]
    assert rows.get("output") == (None if how == "toml" else str(workspace / "mlcbuild-out"))
    assert main(["info", "--output", "json"]) == 7
    document = json.loads(capsys.readouterr().out)
    (error,) = document["errors"]
    assert f"{error['location']}: {error['message']}".startswith(told)


def test_info_with_broken_settings_of_the_user_answers_what_it_can(
    workspace: Path, tmp_path: Path, capsys: Capture
) -> None:
    settings = tmp_path / "no settings/mlcbuild/settings.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("= =")
    assert main(["info", "--output", "json"]) == 7
    document = json.loads(capsys.readouterr().out)
    assert [error["location"] for error in document["errors"]] == [f"{settings}:1:3"]
    assert {"label": "//:v3", "kind": "cpu"} in document["platforms"]
    assert main(["cache", "stats"]) == 7
    out, err = capsys.readouterr()
    assert "empty" in out
    assert err.startswith(f"{settings}:1:3: not valid TOML")


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_workspace_is_cleaned_unless_its_output_folder_is_not_known(
    workspace: Path, how: str, capsys: Capture
) -> None:
    break_workspace(workspace, how)
    for folder in ("mlcbuild-out", ".mlcbuild"):
        (workspace / folder).mkdir()
        (workspace / folder / "x").write_text("x")
    assert main(["clean"]) == (7 if how == "toml" else 0)
    assert (workspace / "mlcbuild-out").exists() == (how == "toml")
    (workspace / "BUILD.toml").write_text(GOOD.replace("[workspace]\n", "[workspace]\noutput = 3\n"))
    (workspace / "mlcbuild-out").mkdir(exist_ok=True)
    assert main(["clean"]) == 7
    assert (workspace / "mlcbuild-out").exists()


def test_info_outside_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["info", "--output", "json"]) == 0
    assert "workspace" not in json.loads(capsys.readouterr().out)["paths"]


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


def complete(words: str, **more: str) -> list[str]:
    environment = {
        **os.environ,
        "_MLCBUILD_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        **more,
    }
    done = subprocess.run(
        [sys.executable, "-m", "mlcbuild.cli.main"], capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout.split()


def test_completion_of_commands_and_options(workspace: Path) -> None:
    assert "build" in complete("mlcbuild b")
    assert "--keep-going" in complete("mlcbuild build --k")
    assert complete("mlcbuild build --config r") == ["release"]


def test_completion_of_labels(workspace: Path) -> None:
    assert complete("mlcbuild build //") == ["//models:all", "//models/..."]
    assert complete("mlcbuild build //mo") == ["//models:all", "//models/..."]
    assert complete("mlcbuild build //models:s") == ["//models:shapes"]
    assert complete("mlcbuild run :a") == [":all-data", ":all"]


def test_completion_in_bash_whose_words_end_at_colons(workspace: Path) -> None:
    assert complete("mlcbuild query @platforms//:cu") == ["@platforms//:cuda"]
    assert complete("mlcbuild query @platforms// : cu") == ["cuda"]
    assert complete("mlcbuild build //models : s") == ["shapes"]
    assert complete("mlcbuild build //models :") == ["shapes", "all"]
    assert complete("mlcbuild build -- -//models : s") == ["shapes"]
    assert complete("mlcbuild run : a") == ["all-data", "all"]
    assert complete("mlcbuild build //models : shapes //mo") == ["//models:all", "//models/..."]


def test_scripts_for_completion_are_shown(workspace: Path) -> None:
    environment = {**os.environ, "SHELL": "/bin/bash", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "mlcbuild.cli.main", "--show-completion", "bash"],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert "complete -o default -F _mlcbuild_completion mlcbuild" in done.stdout


@pytest.mark.parametrize("directory", ["nothing", "/".join("a" * 5000), "BUILD.toml"])
@pytest.mark.parametrize("command", ["info", "query //...", "build //..."])
def test_a_directory_that_cannot_be_is_an_error_in_the_command_line(
    directory: str, command: str, workspace: Path, capsys: Capture
) -> None:
    assert main(["-C", directory, *command.split()]) == 2
    assert "is not a directory\n  check the argument of --workspace\n" in capsys.readouterr().err
