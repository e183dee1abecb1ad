"""Targets whose schemes are chosen: what is measured and when, and which mistakes are told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from mlcbuild.engine.action import Action, StageCall
from mlcbuild.errors import WorkspaceErrors
from tests.rules.model_workspaces import model_workspace
from tests.rules.world import action, analysed

_TEXT = """
[[calibration_text]]
name = "text"
texts = ["text.txt"]
observed_on = ":v3"
"""
_AUTO = 'quantization = "auto"\nbudget = "4.5 bits"\ncalibration = ":text"\n'


def _target(attributes: str, *, rule: str = "quantized_weights", name: str = "w") -> str:
    return f'{_TEXT if name == "w" else ""}\n[[{rule}]]\nname = "{name}"\nmodel = ":m"\n{attributes}'


def _workspace(root: Path, targets: str) -> Path:
    return model_workspace(root, targets, **{"models/text.txt": "Some text."})


def _announced(actions: Sequence[Action], owner: str) -> tuple[Action, ...]:
    importing = next(each for each in actions if each.mnemonic == "ImportWeights" and each.owner == owner)
    manifest = json.dumps({"version": 1, "shards": [{"file": "a.safetensors", "tensors": []}]}).encode()
    assert importing.discoverer is not None
    return importing.discoverer(discovering="import", manifest=manifest).actions


def test_every_candidate_is_measured_once_for_each_shard_and_another_budget_measures_nothing_anew(
    tmp_path: Path,
) -> None:
    other = _AUTO.replace("4.5 bits", "5 bits")
    root = _workspace(tmp_path, _target(_AUTO) + _target(other, name="v"))
    analysis = analysed(root, "//models:w", "//models:v")
    first, second = (
        [each for each in _announced(analysis.actions, owner) if each.mnemonic == "MeasureSensitivity"]
        for owner in ("//models:w", "//models:v")
    )
    assert [each.identifier for each in first] == [
        f"//models:w MeasureSensitivity 0 {name}" for name in ("q3f16_1", "q4f16_1", "q8f16_1", "q0f16")
    ]
    # Equal calls of equal inputs have one key: what differs are the names of actions alone.
    assert [each.command for each in first] == [each.command for each in second]
    choices = {each.owner: each for each in analysis.actions if each.mnemonic == "ChoosePrecision"}
    assert choices["//models:w"].command != choices["//models:v"].command


def test_measuring_waits_for_no_choice_and_quantizing_does(tmp_path: Path) -> None:
    root = _workspace(tmp_path, _target(_AUTO + 'platform = ":v3"\n', rule="model_package"))
    analysis = analysed(root, "//models:w")
    found = {each.identifier: each for each in (*analysis.actions, *_announced(analysis.actions, "//models:w"))}
    assigned = action(analysis, "AssignPrecision").identifier

    def needs(identifier: str) -> set[str]:
        made_by = {getattr(each.artifact, "action", "") for each in found[identifier].inputs} & found.keys()
        return made_by.union(*map(needs, made_by))

    assert assigned not in needs("//models:w MeasureSensitivity 0 q4f16_1")
    assert assigned not in needs("//models:w ImportWeights")
    for name in ("Quantize 0", "IndexWeights", "GenConfig", "Export", "ConfigureModel"):
        assert "//models:w ChoosePrecision" in needs(f"//models:w {name}")
    quantize = found["//models:w Quantize 0"].command
    assert isinstance(quantize, StageCall)
    assert quantize.function == "mlcbuild.compiler.stages.with_precision:run"


@pytest.mark.parametrize(
    ("attributes", "rule", "told"),
    [
        ('quantization = "auto"\ncalibration = ":text"\n', "quantized_weights", '"auto" needs a `budget`'),
        ('quantization = "auto"\nbudget = "4 bits"\n', "quantized_weights", '"auto" needs a `calibration`'),
        (_AUTO + 'calibration_method = "maximum"\n', "quantized_weights", "maximum does not calibrate q3f16_1"),
        (_AUTO.replace("4.5 bits", "many"), "quantized_weights", '"many" is no budget'),
        (_AUTO + 'candidates = ["q4f16_1", "q4f32_1"]\n', "quantized_weights", "must compute in one type"),
        ('quantization = "q4f16_1"\nbudget = "4 bits"\n', "quantized_weights", 'budget is for quantization = "auto"'),
        (_AUTO + 'candidates = ["q3f16_1", "q4f16_1"]\n', "gguf_package", "GGUF has no exact form of q3f16_1"),
        ('quantization = "auto"\nplatform = ":v3"\n', "model_library", '"auto" is no scheme here'),
        ('quantization = { default = "q4f16_1", "*.o_proj" = "auto" }\n', "quantized_weights", '"auto" is no scheme'),
        (
            'quantization = { default = "q4f16_1", "*.o_proj" = "e4m3_e4m3_f16" }\ncalibration = ":text"\n',
            "quantized_weights",
            "no method calibrates q4f16_1+e4m3_e4m3_f16",
        ),
    ],
)
def test_what_goes_with_no_choice_is_told(tmp_path: Path, attributes: str, rule: str, told: str) -> None:
    with pytest.raises(WorkspaceErrors) as caught:
        analysed(_workspace(tmp_path, _target(attributes, rule=rule)), "//models:w")
    assert told in str(caught.value)
    assert "models/BUILD.toml:" in str(caught.value)


def test_candidates_of_a_gguf_package_have_exact_forms(tmp_path: Path) -> None:
    analysis = analysed(_workspace(tmp_path, _target(_AUTO, rule="gguf_package")), "//models:w")
    choice = action(analysis, "ChoosePrecision").command
    assert isinstance(choice, StageCall)
    assert dict(choice.parameters)["candidates"] == ["q4f16_1", "q8f16_1", "q0f16"]
