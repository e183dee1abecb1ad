"""`mlcbuild show`: actions of a target as they stand now."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.main import main
from tests.cli.conftest import at_eighty_columns
from tests.compiler.tiny_llama import TINY_LLAMA

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]


def shown(capsys: Capture, *arguments: str, fails: int = 0) -> str:
    capsys.readouterr()
    assert main(["show", *arguments]) == fails
    out, err = capsys.readouterr()
    return err if fails else out


def document(capsys: Capture, *arguments: str) -> Any:
    return json.loads(shown(capsys, *arguments, "--output", "json"))


def steady(text: str, root: Path) -> str:
    """The text without what differs from run to run and from machine to machine."""
    text = text.replace(str(root.parent), "WORLD")
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(, [0-9a-f]{8})?", lambda found: f"{'DATE':<{len(found[0])}}", text)
    text = re.sub(r"\b\d+\.\d\d s(, local), \d.*?B of memory", "0.00 s, local", text)
    text = re.sub(r"(?m)^(.*?DATE +)\d\.\d\d", r"\g<1>0.00", text)
    text = re.sub(r"(?m)^ +\d\.\d\d  ", "   0.00  ", text)
    text = re.sub(r"cas/[0-9a-f]{2}/", "cas/", text)
    return re.sub(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,64}\b", lambda found: f"{'DIGITS':x<{len(found[0])}}", text)


LISTINGS = {
    "target": ["//:model"],
    "partition": ["//:model", "Partition"],
    "kernels": ["//:model", "CompileKernel"],
    "kernel": ["//:model", "compilekernel", "add"],
    "link": [":model", "Link"],
    "tool": ["//:package", "Command"],
}
ERRORS = {
    "two-targets": ["//..."],
    "mnemonic": ["//:model", "Compile"],
    "others": ["//:package", "Link"],
    "kernel": ["//:model", "CompileKernel", "softmax"],
}


def test_listings_and_errors(built: Path, snapshot: Snapshot, capsys: Capture) -> None:
    for name, arguments in LISTINGS.items():
        for color, suffix in (("never", ""), ("always", "-color")):
            assert main(["--color", color, "show", *arguments]) == 0
            snapshot(f"show-{name}{suffix}", at_eighty_columns(steady(capsys.readouterr().out, built)))
    for name, arguments in ERRORS.items():
        snapshot(f"usage-show-{name}", at_eighty_columns(shown(capsys, *arguments, fails=2)))


def test_outputs_are_named_with_their_bytes(built: Path, capsys: Capture) -> None:
    (link,) = document(capsys, "//:model", "Link")["actions"]
    (output,) = link["output_files"]
    assert Path(output["blob"]).read_text() == "FIRST BODYSECOND BODYTHIRD BODY"
    assert output["size_bytes"] == 31
    assert output["path"] == "out/lib.txt"
    assert output["hash"] in output["blob"]
    (objects,) = link["input_files"]
    assert [each["size_bytes"] for each in objects["files"]] == [10, 11, 10]
    (command,) = document(capsys, "//:package", "Command")["actions"]
    assert command["placed"] == ["mlcbuild-out/default/package/package.txt"]
    assert (built / command["placed"][0]).is_file()


def test_a_kernel_is_found_by_its_content_and_by_its_whole_printed_name(built: Path, capsys: Capture) -> None:
    kernels = document(capsys, "//:model", "CompileKernel")["actions"]
    assert len(kernels) == 3
    for kernel in kernels:
        content = kernel["details"]["kernel"]
        for words in ((kernel["title"],), ("//:model", "CompileKernel", content[:6]), kernel["title"].split()):
            (found,) = document(capsys, *words)["actions"]
            assert found["action"] == kernel["action"]


def test_states_and_last_runs_follow_builds_and_edits(workspace: Path, capsys: Capture) -> None:
    (partition,) = document(capsys, "//:model", "Partition")["actions"]
    assert (partition["state"], partition["output_files"], partition["last_run"]) == ("would run", None, None)
    assert document(capsys, "//:model")["not_known"] == [{"announced_by": "//:model Partition"}]
    assert main(["build", "//:package"]) == 0
    (ran,) = document(capsys, "//:model", "Partition")["actions"]
    assert (ran["state"], ran["last_run"]["cause"]) == ("up to date", "first build")
    assert ran["last_run"]["seconds"] > 0
    assert ran["result_from"]["status"] == "executed_local"
    (workspace / "model.txt").write_text((workspace / "model.txt").read_text().replace("third", "3rd"))
    (edited,) = document(capsys, "//:model", "Partition")["actions"]
    assert (edited["state"], edited["output_files"]) == ("would run", None)
    assert edited["last_run"] == ran["last_run"], "it did not run since"
    overridden = document(capsys, "//:model", "Partition", "--set", "//:model.level=7")["actions"]
    assert overridden[0]["stage"]["parameters"]["target"]["level"] == 7


def test_a_result_from_a_cache_is_told_from_a_run(built: Path, capsys: Capture) -> None:
    assert main(["clean", "--expunge"]) == 0
    assert main(["build", "//:package"]) == 0
    text = shown(capsys, "//:model", "Link")
    assert "result       from disk, in the build of" in text
    assert "last run     in no recorded build of this workspace" in text


def test_a_failed_action_is_shown_with_its_message_and_log(workspace: Path, capsys: Capture) -> None:
    (workspace / "pipeline/stages/link.py").write_text(
        "def run(*, objects, library):\n    print('linking')\n    error = ZeroDivisionError('division by zero')\n"
        "    error.add_note('which is no number')\n    raise error\n"
    )
    assert main(["build", "//:package"]) == 1
    text = shown(capsys, "//:model", "Link")
    assert "result       failed, in the build of" in text
    assert "ZeroDivisionError: division by zero\n               which is no number\n" in text
    assert "│ linking" in text


@pytest.mark.slow
def test_a_target_with_many_kernels_is_listed_in_a_second(built: Path, capsys: Capture) -> None:
    lines = [f"matmul{number} decode body {number}" for number in range(250)]
    (built / "model.txt").write_text("\n".join(lines))
    assert main(["build", "//:package", "--jobs", "2"]) == 0
    began = time.process_time()
    assert "CompileKernel ×250" in shown(capsys, "//:model")
    assert time.process_time() - began < 1.0


def test_few_of_many_plugins_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    (tmp_path / "BUILD.toml").write_text(
        '[workspace]\nname = "x"\n[[model]]\nname = "m"\nconfig = "config.json"\n'
        '[[model_library]]\nname = "l"\nmodel = ":m"\nplatform = "@platforms//:cpu"\nquantization = "q4f32_1"\n'
    )
    (tmp_path / "config.json").write_text(json.dumps(TINY_LLAMA))
    monkeypatch.chdir(tmp_path)
    assert main(["show", "//:l", "Export", "--output", "json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["actions"]
    given = shown["stage"]["plugins"]["models"]
    assert main(["show", "//:l", "Export"]) == 0
    rows = [line.split("plug-in")[1].strip() for line in capsys.readouterr().out.splitlines() if "plug-in" in line]
    of_models = [row for row in rows if row.startswith("models")]
    assert of_models[:-1] == [f"models = {name}" for name in given[:4]]
    assert of_models[-1] == f"models: {len(given) - 4} more, which --output=json has"
