"""Layers of our models for other compilers: what their rules take of one, and mistakes that are told at load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlcbuild.engine.action import Action, StageCall
from mlcbuild.errors import WorkspaceErrors
from tests.compiler.family_cases import CASES
from tests.rules.world import action, analysed, write

PIN = "--hash=sha256:" + "0123456789abcdef" * 4
LOCKED = ("onnx", "jax", "jaxlib", "flatbuffers", "torch", "safetensors")
TABLES = """\
[workspace]
name = "test"

[[python_environment]]
name = "made"
lock = "lock.txt"
license = "MIT"

[[model]]
name = "m"
{source}

[[exported_layer]]
name = "l"
model = ":m"
{more}

[[onnx_model]]
name = "onnx"
source = ":l"
environment = ":made"

[[stablehlo_module]]
name = "hlo"
source = ":l"
environment = ":made"

[[torch_model]]
name = "torch"
source = ":l"
weights = ":l"
environment = ":made"
"""


def workspace(root: Path, *, case: str = "llama", source: str = 'source = "source"', more: str = "") -> Path:
    lock = "".join(f"{name}==1.0 {PIN}\n" for name in LOCKED)
    config = json.dumps(CASES[case].config)
    files = {"source/config.json": config, "source/model.safetensors": "", "config.json": config, "lock.txt": lock}
    return write(root, {"BUILD.toml": TABLES.format(source=source, more=more), **files})


def inputs(found: Action) -> dict[str, object]:
    assert isinstance(found.command, StageCall)
    return dict(found.command.inputs)


def test_each_compiler_takes_the_form_of_a_layer_that_it_reads(tmp_path: Path) -> None:
    graph = analysed(workspace(tmp_path), "//...")
    assert inputs(action(graph, "ExportStableHLO"))["source"] == "in/source/layer_jax.py"
    assert inputs(action(graph, "ExportTorch"))["source"] == "in/source/layer_torch.py"
    assert inputs(action(graph, "CheckTorchWeights"))["weights"] == ("in/weights/weights.safetensors",)
    assert inputs(action(graph, "CheckOnnx"))["source"] == "in/source/layer.onnx"
    assert inputs(action(graph, "WriteOnnx")) == {
        "environment": "in/environment/",
        "graph": "in/graph/layer.json",
        "weights": "in/weights/weights.safetensors",
    }


def test_a_layer_is_exported_without_weights_and_in_sizes_that_are_known(tmp_path: Path) -> None:
    exported = action(analysed(workspace(tmp_path, more="layer = 2\ntokens = 4"), "//:l"), "ExportLayer")
    assert inputs(exported) == {"model": "in/model/model.json"}
    assert isinstance(exported.command, StageCall)
    assert dict(exported.command.parameters) == {"cache_tokens": 128, "layer": 2, "tokens": 4}
    assert exported.toolchains == ("tvm",)


@pytest.mark.parametrize(
    ("case", "source", "more", "told"),
    [
        ("llama", 'source = "source"', "layer = 3", "//:m has no layer 3 in //:l"),
        ("llama", 'source = "source"', "layer = -1", '"layer" must be at least 0'),
        ("llama", 'source = "source"', "tokens = 0", '"tokens" must be at least 1'),
        ("llama", 'config = "config.json"', "", "model //:m has no weights"),
        ("mamba2", 'source = "source"', "", "layer 0 of //:m has no attention over a KV cache in //:l"),
        ("bert", 'source = "source"', "", "layer 0 of //:m has no attention over a KV cache in //:l"),
    ],
)
def test_a_mistake_is_told_at_load(tmp_path: Path, case: str, source: str, more: str, told: str) -> None:
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(workspace(tmp_path, case=case, source=source, more=more), "//:l")
    assert any(told in str(error) for error in raised.value.errors), str(raised.value)
