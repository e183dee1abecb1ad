"""Targets whose matrices are stored by several schemes: what their actions are given, and which mistakes are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlcbuild.engine.action import Action, Input, StageCall
from mlcbuild.errors import WorkspaceErrors
from tests.rules.model_workspaces import model_workspace
from tests.rules.world import action, analysed

_MIXED = '{ default = "q4f16_1", "model.layers.*.mlp.down_proj" = "q8f16_1" }'
_WITH_PRECISION = "mlcbuild.compiler.stages.with_precision:run"


def _weights(quantization: str, *, model: str = "m", rule: str = "quantized_weights") -> str:
    return f'\n[[{rule}]]\nname = "w"\nmodel = ":{model}"\nquantization = {quantization}\n'


def _package(quantization: str) -> str:
    return _weights(quantization, rule="model_package") + 'platform = ":v3"\n'


def _stage(of: Action) -> StageCall:
    assert isinstance(of.command, StageCall)
    return of.command


def _told(root: Path, target: str = "//models:w") -> str:
    with pytest.raises(WorkspaceErrors) as caught:
        analysed(root, target)
    return str(caught.value)


def test_every_stage_with_a_scheme_is_given_the_assigned_ones(tmp_path: Path) -> None:
    analysis = analysed(model_workspace(tmp_path, _package(_MIXED)), "//models:w")
    assigned = action(analysis, "AssignPrecision")
    assert dict(_stage(assigned).parameters)["choices"] == [
        ["default", "q4f16_1"],
        ["model.layers.*.mlp.down_proj", "q8f16_1"],
    ]
    discoverer = action(analysis, "ImportWeights").discoverer
    assert discoverer is not None
    manifest = json.dumps({"version": 1, "shards": [{"file": "a.safetensors", "tensors": []}]}).encode()
    (quantize,) = discoverer(discovering="import", manifest=manifest).actions
    stages = [action(analysis, name) for name in ("ConfigureModel", "Export", "GenConfig", "IndexWeights")]
    for each in (*stages, quantize):
        call = _stage(each)
        assert call.function == _WITH_PRECISION
        plugins = dict(call.plugins)
        assert plugins["schemes"] == tuple(
            f"mlcbuild.compiler.quantization.schemes.{name}:SCHEME" for name in ("q4f16_1", "q8f16_1")
        )
        assert str(plugins["stage"]).startswith("mlcbuild.compiler.stages.")
        assert _made_by(each, "precision") == assigned.identifier
    assert dict(_stage(quantize).plugins)["encoders"] == ("mlcbuild.compiler.quantization.group.encoder:GroupEncoder",)
    # Kinds of layers that differ in precision reach Export, and by ConfigureModel also Lower.
    assert _made_by(action(analysis, "Export"), "model") == assigned.identifier
    assert _made_by(action(analysis, "ConfigureModel"), "model") == assigned.identifier


def test_one_scheme_reaches_stages_as_itself_however_it_is_written(tmp_path: Path) -> None:
    calls = []
    for number, quantization in enumerate(('"q4f16_1"', '{ default = "q4f16_1" }')):
        analysis = analysed(model_workspace(tmp_path / str(number), _package(quantization)), "//models:w")
        assert "AssignPrecision" not in {each.mnemonic for each in analysis.actions}
        calls.append({each.mnemonic: each.command for each in analysis.actions})
    assert calls[0] == calls[1]
    assert calls[0]["Export"].function == "mlcbuild.compiler.stages.export:run"  # type: ignore[union-attr]


def test_a_file_says_the_same_as_a_table(tmp_path: Path) -> None:
    table = {"default": "q4f16_1", "model.layers.*.mlp.down_proj": "q8f16_1"}
    document = json.dumps({"version": 1, "quantization": table})
    files = {"models/mine/precision.json": document}
    analysis = analysed(model_workspace(tmp_path, _weights('"mine/precision.json"'), **files), "//models:w")
    assigned = action(analysis, "AssignPrecision")
    (given,) = (each for each in assigned.inputs if each.path == "in/precision/precision.json")
    assert getattr(given.artifact, "path", "") == "models/mine/precision.json"
    assert _stage(action(analysis, "IndexWeights")).function == _WITH_PRECISION


def test_a_table_by_platform_may_hold_tables_by_patterns(tmp_path: Path) -> None:
    by_platform = f'{{ ":v3" = {_MIXED}, default = "q0f32" }}'
    analysis = analysed(model_workspace(tmp_path, _package(by_platform)), "//models:w")
    assert _stage(action(analysis, "Export")).function == _WITH_PRECISION


@pytest.mark.parametrize(
    ("quantization", "told"),
    [
        (
            '{ default = "q4f16_1", lm_hed = "q8f16_1" }',
            'models/BUILD.toml:18:16: //models:w: no matrix of the model is "lm_hed", or an earlier pattern has all '
            "that are\n  matrices of the model are: model.embed_tokens, model.layers.0.self_attn.qkv_proj",
        ),
        (
            '{ default = "q4f16_1", "*.down_proj" = "q0f32" }',
            "models/BUILD.toml:18:16: //models:w: q4f16_1 computes in float16 and q0f32 in float32: the schemes of one "
            "target must compute in one type\n  choose schemes of float16, as q4f16_1 is",
        ),
        (
            '{ "*.down_proj" = "q8f16_1" }',
            'models/BUILD.toml:18:16: "quantization" of //models:w lacks "default"\n  add default = …',
        ),
        (
            '{ default = "q4f16_1", "*.down_proj" = "q8f16_2" }',
            'models/BUILD.toml:18:55: unknown quantization "q8f16_2" in //models:w\n  known: ',
        ),
        (
            '{ default = "q4f16_1", "*.down_proj" = 8 }',
            'models/BUILD.toml:18:55: "quantization" must have a string for "*.down_proj", not the integer 8, in '
            "//models:w",
        ),
        (
            '{ ":v3" = "q4f16_1", "*.down_proj" = "q8f16_1" }',
            'models/BUILD.toml:18:37: "quantization" of //models:w has keys of two kinds: ":v3" is a '
            'platform or configuration, "*.down_proj" a pattern of names\n  write a table of patterns for each '
            'platform or configuration: ":v3" = { default = …, "*.down_proj" = … }',
        ),
        (
            '"absent/precision.json"',
            "models/BUILD.toml:18:16: ",
        ),
    ],
)
def test_mistakes_are_told_at_their_places(tmp_path: Path, quantization: str, told: str) -> None:
    found = _told(model_workspace(tmp_path, _weights(quantization)))
    assert found.startswith(told), found


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{}", "//models:w: models/precision.json is no precision.json of version 1"),
        (
            '{"version": 1, "quantization": {"default": "q4f16_9"}}',
            'unknown quantization "q4f16_9" in models/precision.json in //models:w\n  known: ',
        ),
    ],
)
def test_a_wrong_file_is_told_at_the_attribute(tmp_path: Path, content: str, told: str) -> None:
    files = {"models/precision.json": content}
    found = _told(model_workspace(tmp_path, _weights('"precision.json"'), **files))
    assert found.startswith(f"models/BUILD.toml:18:16: {told}"), found


def test_every_scheme_of_a_gguf_package_must_have_an_exact_form(tmp_path: Path) -> None:
    quantization = '{ default = "q4f16_1", "*.down_proj" = "q3f16_1", "*.o_proj" = "q8f16_1" }'
    found = _told(model_workspace(tmp_path, _weights(quantization, rule="gguf_package")))
    assert "GGUF has no exact form of q3f16_1" in found
    assert "q8f16_1:" not in found


def _made_by(of: Action, argument: str) -> str:
    (found,) = (each for each in of.inputs if each.path.startswith(f"in/{argument}/"))
    assert isinstance(found, Input)
    return str(getattr(found.artifact, "action", ""))
