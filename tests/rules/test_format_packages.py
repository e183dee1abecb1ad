"""Packages in other engines' formats: which actions make them, and what is refused when a workspace is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlcbuild.errors import WorkspaceErrors
from mlcbuild.rules.schemes import NAMES
from tests.rules.model_workspaces import CONFIG, maker, model_workspace
from tests.rules.world import action, analysed

# The last is refused because of the model's sizes alone.
_NOT_IN_COMPRESSED_TENSORS = (
    *("q3f16_0", "q3f16_1", "e5m2_e5m2_f16", "q8_0_f16", "q6_k_f16", "q5_k_f16", "q4_k_f16"),
    "q4f16_autoawq",
)


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


def test_a_checkpoint_is_made_of_the_shards_of_quantized_weights(tmp_path: Path) -> None:
    targets = _target("compressed_tensors_package", "q4f16_1") + _target("gguf_package", "q4f16_1").replace(
        '"p"', '"g"'
    )
    analysis = analysed(model_workspace(tmp_path, targets), "//models:p", "//models:g")
    first, second = (each for each in analysis.actions if each.mnemonic == "ImportWeights")
    assert (first.command, first.outputs) == (second.command, second.outputs)
    assert action(analysis, "WriteCompressedTensors").outputs == ("out/checkpoint/", "out/config.json")


@pytest.mark.parametrize("quantization", ["q3f16_1", "q3f16_0", "e5m2_e5m2_f16", "q8_0_f16", "q4_k_f16"])
def test_a_scheme_that_compressed_tensors_cannot_say_is_refused(tmp_path: Path, quantization: str) -> None:
    with pytest.raises(WorkspaceErrors, match=f"compressed-tensors has no exact form of {quantization}"):
        analysed(model_workspace(tmp_path, _target("compressed_tensors_package", quantization)), "//models:p")


def test_every_other_scheme_has_a_form_in_compressed_tensors(tmp_path: Path) -> None:
    targets = "".join(
        _target("compressed_tensors_package", name).replace('"p"', f'"{name}"')
        for name in NAMES
        if name not in _NOT_IN_COMPRESSED_TENSORS
    )
    analysis = analysed(model_workspace(tmp_path, targets), "//models:all")
    assert len({one.owner for one in analysis.actions if one.mnemonic == "WriteCompressedTensors"}) == len(NAMES) - len(
        _NOT_IN_COMPRESSED_TENSORS
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embedding_metadata": {"pooling_strategy": "cls", "normalize": True}}, "how texts become vectors"),
        ({"text_config": {}}, "has a vision part, which is not built"),
    ],
)
def test_a_model_of_which_a_checkpoint_says_more_is_refused(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    config = json.dumps({**json.loads(CONFIG), **changes})
    files = {"models/weights/config.json": config}
    with pytest.raises(WorkspaceErrors, match=message):
        analysed(model_workspace(tmp_path, _target("compressed_tensors_package", "q0f16"), **files), "//models:p")
