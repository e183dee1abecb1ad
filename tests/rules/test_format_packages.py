"""Packages in other engines' formats: which actions make them, and what is refused when a workspace is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlcbuild.errors import WorkspaceErrors
from tests.rules.model_workspaces import CONFIG, maker, model_workspace
from tests.rules.world import action, analysed


def _target(rule: str, quantization: str) -> str:
    return f'[[{rule}]]\nname = "p"\nmodel = ":m"\nquantization = "{quantization}"\n'


def test_a_gguf_file_is_made_of_the_shards_of_quantized_weights(tmp_path: Path) -> None:
    targets = _target("gguf_package", "q4f16_1") + _target("quantized_weights", "q4f16_1").replace('"p"', '"w"')
    analysis = analysed(model_workspace(tmp_path, targets), "//models:p", "//models:w")
    first, second = (each for each in analysis.actions if each.mnemonic == "ImportWeights")
    assert (first.command, first.outputs) == (second.command, second.outputs)
    written = action(analysis, "WriteGGUF")
    made = {item.path.split("/")[1]: maker(item) for item in written.inputs if item.path.startswith("in/header")}
    assert made == {"header": "//models:p DescribeGGUF"}


@pytest.mark.parametrize("quantization", ["q4f32_1", "q3f16_1", "q4bf16_1", "mxfp4_bf16"])
def test_a_scheme_without_an_exact_form_is_refused(tmp_path: Path, quantization: str) -> None:
    with pytest.raises(WorkspaceErrors, match=f"GGUF has no exact form of {quantization}"):
        analysed(model_workspace(tmp_path, _target("gguf_package", quantization)), "//models:p")


def test_a_model_that_a_file_cannot_say_is_refused(tmp_path: Path) -> None:
    config = json.dumps({**json.loads(CONFIG), "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})
    workspace = model_workspace(tmp_path, _target("gguf_package", "q0f16"), **{"models/weights/config.json": config})
    with pytest.raises(WorkspaceErrors, match='rotary embeddings by "dynamic", which no GGUF file says'):
        analysed(workspace, "//models:p")
