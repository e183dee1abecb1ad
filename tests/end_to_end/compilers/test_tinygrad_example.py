"""The rule of examples/tinygrad, which the page of other compilers explains: what it makes, and what runs again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import main
from tests.end_to_end.compilers.compiler_world import BOUND, CompilerWorld, ran
from tests.end_to_end.world import PROJECT

EXAMPLE = PROJECT / "examples/tinygrad"
PAGE = PROJECT / "docs/other-compilers.md"
COMPILED = "//:mlp-tinygrad"


def test_the_page_shows_the_rule_as_it_is() -> None:
    """A line that is an ellipsis on the page stands for the rest of the function."""
    shown = PAGE.read_text(encoding="utf-8").partition("## An example: tinygrad")[2].partition("```python\n")[2]
    shown = shown.partition("    …\n")[0]
    assert shown.startswith("def implement(")
    assert shown in (EXAMPLE / "tiny/tinygrad_library.py").read_text(encoding="utf-8")


def test_the_example_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody who clones the repository can build it as it stands: nothing has to be put beside it."""
    ignored = shutil.ignore_patterns("mlcbuild-out", ".mlcbuild")
    monkeypatch.chdir(shutil.copytree(EXAMPLE, tmp_path / "example", ignore=ignored))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["build", "--dry-run", "//..."]) == ExitCode.WOULD_RUN
    assert "//:my-mlp" in capsys.readouterr().out


@pytest.fixture
def world(tmp_path: Path) -> CompilerWorld:
    world = CompilerWorld(tmp_path)
    shutil.copytree(EXAMPLE / "tiny", world.root / "tiny")
    shutil.copy(EXAMPLE / "tinygrad.txt", world.root)
    world.table("python_environment", "tinygrad", lock="tinygrad.txt", license="MIT AND Apache-2.0 AND BSD-3-Clause")
    made = {"model": ":mlp-8", "environment": ":tinygrad", "cpu": "x86-64-v2"}
    world.table("onnx_model", "mlp-8", source=":mlp-source", environment=":onnxruntime", sizes={"batch": 8})
    world.table("tinygrad_library", "mlp-tinygrad", **made)
    world.table("tinygrad_library", "mlp-open", **{**made, "model": ":mlp"})
    compared = {"model": ":mlp-8", "environment": ":onnxruntime", "rounds": 1, "seconds": 0.05, "threads": 1}
    world.table("compile_comparison", "compared", builds=[":mlp-tinygrad"], **compared)  # type: ignore[arg-type]
    declare(world)
    return world


def declare(world: CompilerWorld) -> None:
    text = (world.root / "BUILD.toml").read_text(encoding="utf-8")
    world.write(
        "BUILD.toml", text.replace('["//checks:rules.py"]', '["//checks:rules.py", "//tiny:tinygrad_library.py"]')
    )


@pytest.mark.exhaustive
def test_what_it_makes_is_near_float64_and_only_what_changed_is_made_again(world: CompilerWorld) -> None:
    done = world.build("//:compared")
    assert done.code == 0, done.err
    (model,) = json.loads(world.output("compared/measured.json").read_text())["models"]
    (case,) = model["cases"]
    assert case["error"] < BOUND
    assert case["largest"] > 0.1
    assert ran(world.build(COMPILED)) == set()
    library = world.output("mlp-tinygrad/model.so").read_bytes()
    world.table("written", "mlp-source", kind="mlp", seed=7, environment=":onnxruntime")
    declare(world)
    done = world.build(COMPILED)
    assert done.report["targets"][COMPILED]["ran"] == 1, "SplitWeights alone"
    assert world.output("mlp-tinygrad/model.so").read_bytes() == library


@pytest.mark.exhaustive
def test_the_same_bytes_in_another_surrounding_and_a_model_of_open_shape(world: CompilerWorld) -> None:
    done = world.build("--check-determinism", COMPILED)
    assert done.code == 0, done.err
    done = world.build("//:mlp-open")
    assert done.code == 1
    assert "give it sizes by `sizes` of the onnx_model" in done.err
    assert "Traceback" not in done.err
