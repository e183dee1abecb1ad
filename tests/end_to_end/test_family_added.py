"""A family that is added is a folder more: of other families ResolveModel and Export alone run again (and ImportConfig,
for models with weights: families say what a GGUF file's metadata mean), and what they make is the same.

What runs for a llama from its weights to its package is a row of `test_what_runs`; here are all families.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.compiler.family_cases import CASES
from tests.compiler.windowed_cases import WINDOWED

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
MODELS = {**CASES, **WINDOWED}
EXPORTED = ("gemma2", "deepseek_v3", "mamba2", "bert")
HEAD = """\
[workspace]
name = "families"

[[platform]]
name = "cpu"
kind = "cpu"
cpu = "x86-64-v2"
"""
TARGETS = """
[[model]]
name = "{name}"
config = "{name}.json"

[[model_library]]
name = "{name}-library"
model = ":{name}"
quantization = "q0f32"
platform = ":cpu"
"""
# What stages make of each configuration of a folder, into a folder of its name.
EXPORT = """
import json, sys
from pathlib import Path
from mlcbuild.compiler.stages import export
from tests.compiler import schemes
from tests.compiler.resolving import model_builders, write_resolved
scheme = schemes.scheme("q0f32")
for config in sorted(Path(sys.argv[1]).glob("*.json")):
    made = Path(sys.argv[2], config.stem)
    made.mkdir(parents=True)
    write_resolved(made, json.loads(config.read_text()))
    export.run(
        model=made / "model.json",
        parameters=made / "parameters.json",
        models=model_builders(),
        module=made / "export.json",
        metadata=made / "metadata.json",
        scheme=scheme,
        reader=schemes.reader_class(scheme),
        hidden_states=False,
    )
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mlcbuild's own code, to which a family can be added."""
    folder = tmp_path_factory.mktemp("code")
    shutil.copytree(PROJECT / "mlcbuild", folder / "mlcbuild", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def add_family(code: Path) -> Path:
    """The llama family under another name, for another model type; the folder."""
    families = code / "mlcbuild/compiler/families"
    folder = families / "throwaway"
    folder.mkdir()
    for file in (families / "llama").glob("*.py"):
        text = file.read_text().replace("families.llama", "families.throwaway").replace('"llama"', '"throwaway"')
        (folder / file.name).write_text(text.replace('"mistral"', '"throwaway-2"'))
    return folder


def run(code: Path, folder: Path, *words: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{code}{os.pathsep}{PROJECT}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_CACHE_HOME": str(folder.parent / "cache"),
    }
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def keys(code: Path, workspace: Path) -> dict[str, dict[str, Any]]:
    """Of each action, what its key is made of, but for files that other actions make."""
    told = json.loads(run(code, workspace, "-m", "mlcbuild.cli.main", "aquery", "//...", "--output=json"))
    return {
        action["action"]: {name: action[name] for name in ("implementation", "stage", "key_components", "inputs")}
        for action in told["actions"]
    }


def test_of_all_other_families_resolving_and_exporting_alone_have_other_keys(code: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for name, case in MODELS.items():
        (workspace / f"{name}.json").write_text(json.dumps(case.config))
    (workspace / "BUILD.toml").write_text(HEAD + "".join(TARGETS.format(name=name) for name in MODELS))
    before = keys(code, workspace)
    added = add_family(code)
    try:
        after = keys(code, workspace)
    finally:
        shutil.rmtree(added)
    assert before.keys() == after.keys()
    changed = {action for action in before if before[action] != after[action]}
    expected = {f"//:{name} ResolveModel" for name in MODELS} | {f"//:{name}-library Export" for name in MODELS}
    assert changed == expected


@pytest.mark.exhaustive
def test_what_families_resolve_and_export_stays_the_same_byte_for_byte(code: Path, tmp_path: Path) -> None:
    configs = tmp_path / "configs"
    configs.mkdir()
    for name in EXPORTED:
        (configs / f"{name}.json").write_text(json.dumps(MODELS[name].config))
    run(code, tmp_path, "-c", EXPORT, "configs", "before")
    added = add_family(code)
    try:
        (configs / "throwaway.json").write_text(json.dumps({**CASES["llama"].config, "model_type": "throwaway"}))
        run(code, tmp_path, "-c", EXPORT, "configs", "after")
    finally:
        shutil.rmtree(added)
    before, after = contents(tmp_path / "before"), contents(tmp_path / "after")
    assert len(before) == len(EXPORTED) * 5
    assert before == {path: content for path, content in after.items() if not path.startswith("throwaway/")}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
