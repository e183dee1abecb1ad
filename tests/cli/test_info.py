"""`mlcbuild info`, also of a workspace with errors, and what `clean` does there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mlcbuild.cli.main import main
from mlcbuild.rules.families import families
from mlcbuild.rules.registry import load_rules
from tests.cli.small_workspace import BUILD_FILE, enter_small_workspace

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter_small_workspace(tmp_path, monkeypatch)


@pytest.mark.usefixtures("cold_workers")
def test_info(workspace: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("COLUMNS", "80")
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
    assert set(document["toolchains"]) == {"gxx", "ld", "numpy", "nvfatbin", "nvrtc", "python", "triton", "tvm"}
    rules = load_rules(Path(), ())
    assert [rule["name"] for rule in document["rules"]] == sorted(rules)
    for rule in document["rules"]:
        assert [found["name"] for found in rule["attributes"]] == list(rules[rule["name"]].schema.by_name)
        assert all(found["doc"] for found in rule["attributes"])


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
    (workspace / "BUILD.toml").write_text(BUILD_FILE.replace("[workspace]\n", "[workspace]\noutput = 3\n"))
    (workspace / "mlcbuild-out").mkdir(exist_ok=True)
    assert main(["clean"]) == 7
    assert (workspace / "mlcbuild-out").exists()


def test_info_outside_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["info", "--output", "json"]) == 0
    assert "workspace" not in json.loads(capsys.readouterr().out)["paths"]


def test_rows_are_wrapped_to_a_terminal_and_are_lines_for_programs(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    lines = {}
    for columns in ("0", "60"):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["info"]) == 0
        lines[columns] = capsys.readouterr().out.splitlines()
    assert all(line[:1] != " " for line in lines["0"]), "one line for each row"
    assert any(line.startswith(" " * 16) for line in lines["60"])
