"""`max_model`: what reaches its actions, and mistakes that are told at load."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.engine.action import CachePolicy, StageCall
from tests.rules.test_other_compilers import errors, workspace
from tests.rules.world import action, analysed

MAX = ("onnx", "numpy", "max", "max-core", "mojo-compiler")
TABLE = """
[[max_model]]
name = "m"
source = "model.py"
weights = "weights.safetensors"
environment = ":made"
"""
COMPARED = '[[compile_comparison]]\nname = "c"\nmodel = ":model"\nbuilds = [":m"]\nenvironment = ":made"\n'


def test_max_compiles_for_its_processor_and_without_weights(tmp_path: Path) -> None:
    found = analysed(workspace(tmp_path, f"{TABLE}{COMPARED}", locked=MAX), "//:c")
    compiled = action(found, "CompileMAX")
    assert (compiled.toolchains, compiled.cache) == (("processor:here", "python"), CachePolicy.NON_REPRODUCIBLE)
    assert isinstance(compiled.command, StageCall)
    assert dict(compiled.command.inputs) == {"environment": "in/environment/", "source": "in/source/model.py"}
    measured = action(found, "MeasureModels").command
    assert isinstance(measured, StageCall)
    assert list(dict(measured.plugins).values()) == ["mlcbuild.compiler.environments.runtimes.max_engine:load"]


@pytest.mark.parametrize(
    ("table", "locked", "told"),
    [
        (TABLE, ("onnx", "numpy"), "//:made has no max and no max-core and no mojo-compiler in //:m"),
        (TABLE.replace("weights.safetensors", "other.txt"), MAX, "weights has no file that ends in .safetensors"),
        (TABLE.replace("model.py", "other.txt"), MAX, "source is not one Python file in //:m"),
    ],
)
def test_a_mistake_in_a_model_of_max_is_told_at_load(
    tmp_path: Path, table: str, locked: tuple[str, ...], told: str
) -> None:
    found = errors(workspace(tmp_path, table, locked=locked))
    assert any(told in each for each in found), found
