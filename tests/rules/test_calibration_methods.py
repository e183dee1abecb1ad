"""Methods of calibration: the actions that they declare, and what is refused when a workspace is loaded."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

from mlcbuild.compiler.quantization.integer_grid import GridEncoder
from mlcbuild.compiler.quantization.scheme import StaticScalesEncoder
from mlcbuild.engine.action import DerivedArtifact, Discovery, StageCall
from mlcbuild.errors import WorkspaceErrors
from mlcbuild.rules import schemes
from mlcbuild.rules.calibration import methods
from tests.compiler.schemes import encoder
from tests.rules.model_workspaces import maker, model_workspace
from tests.rules.world import action, analysed

_TEXT = '[[calibration_text]]\nname = "text"\ntexts = ["text.txt"]\nobserved_on = ":v3"\n'


def _workspace(root: Path, *lines: str, quantization: str = "q4f16_1") -> Path:
    more = "".join(f"{line}\n" for line in lines)
    target = f'[[quantized_weights]]\nname = "w"\nmodel = ":m"\nquantization = "{quantization}"\n{more}'
    return model_workspace(root, _TEXT + target, **{"models/text.txt": "a text"})


def _discovered(root: Path, *lines: str, quantization: str = "q4f16_1") -> Discovery:
    """What the manifest of two imported shards announces."""
    analysis = analysed(_workspace(root, *lines, quantization=quantization), "//models:w")
    importing = action(analysis, "ImportWeights")
    assert importing.discoverer is not None
    shards = '{"version": 1, "shards": [{"file": "shard_00000"}, {"file": "shard_00001"}]}'
    return importing.discoverer(discovering=importing.identifier, manifest=shards.encode())


@pytest.mark.parametrize(
    ("quantization", "lines", "search"),
    [
        ("q4f16_1", ("",), "MergeScales"),
        ("int8_int8_f16", ('calibration_method = "smoothquant"', "smoothing = 0.75"), "SmoothScales"),
    ],
)
def test_a_search_comes_before_the_shards_and_a_change_before_each_quantize(
    tmp_path: Path, quantization: str, lines: tuple[str, ...], search: str
) -> None:
    workspace = _workspace(tmp_path, 'calibration = ":text"', *lines, quantization=quantization)
    analysis = analysed(workspace, "//models:w")
    searching = action(analysis, search)
    found = _discovered(tmp_path, 'calibration = ":text"', *lines, quantization=quantization)
    applied = [each for each in found.actions if each.mnemonic == "ApplyScales"]
    quantized = [each for each in found.actions if each.mnemonic == "Quantize"]
    assert len(applied) == len(quantized) == 2
    for change, quantize in zip(applied, quantized, strict=True):
        makers = {item.artifact.action for item in quantize.inputs if isinstance(item.artifact, DerivedArtifact)}
        assert change.identifier in makers
        assert any(identifier.endswith("ListMadeParameters") for identifier in makers)
        assert searching.identifier in {
            item.artifact.action for item in change.inputs if isinstance(item.artifact, DerivedArtifact)
        }


@pytest.mark.parametrize("quantization", ['"q4f16_1"', '{ default = "q4f16_1", "*.o_proj" = "q0f16" }'])
def test_a_group_is_searched_by_its_own_statistics_and_shards(tmp_path: Path, quantization: str) -> None:
    lines = f'[[quantized_weights]]\nname = "w"\nmodel = ":m"\nquantization = {quantization}\ncalibration = ":text"\n'
    analysis = analysed(model_workspace(tmp_path, _TEXT + lines, **{"models/text.txt": "a text"}), "//models:w")
    plan = action(analysis, "PlanSearch")
    assert maker(next(item for item in plan.inputs if item.path.startswith("in/index/"))).endswith("MergeStatistics")
    assert plan.discoverer is not None
    group = '{"index": "00000.json", "statistics": ["a.safetensors"], "shards": [{"file": "shard_1", "number": 1}]}'
    found = plan.discoverer(discovering=plan.identifier, manifest=f'{{"version": 1, "groups": [{group}]}}'.encode())
    (search,) = found.actions
    inputs = {item.path: item.artifact for item in search.inputs}
    assert inputs["in/shards/shard_1"] == DerivedArtifact(action="//models:w ImportWeights", path="out/shards/shard_1")
    assert inputs["in/statistics/statistics.json"] == DerivedArtifact(
        action=plan.identifier, path="out/groups/00000.json"
    )
    assert inputs["in/statistics/a.safetensors"] == DerivedArtifact(
        action="//models:w MergeStatistics", path="out/statistics/a.safetensors"
    )
    assert not [path for path in inputs if not path.startswith(("in/shards/", "in/statistics/", "in/p"))]
    assert isinstance(search.command, StageCall)
    is_mixed = search.command.function == "mlcbuild.compiler.stages.with_precision:run"
    assert is_mixed == ("default" in quantization)


@pytest.mark.parametrize(
    ("lines", "quantization", "mnemonic", "parameters"),
    [
        (('calibration_method = "gptq"',), "q4f16_autoawq", "Gptq", {"by_activations": False}),
        (('calibration_method = "gptq"', "act_order = true"), "q8f16_ft", "Gptq", {"by_activations": True}),
        ((), "e4m3_e4m3_f16", "Maximum", {}),
        ((), "fp8_e4m3fn_bf16_block_scale_static_activation", "Maximum", {}),
    ],
)
def test_methods_without_a_search_change_each_shard_by_the_statistics(
    tmp_path: Path, lines: tuple[str, ...], quantization: str, mnemonic: str, parameters: dict[str, object]
) -> None:
    found = _discovered(tmp_path, 'calibration = ":text"', *lines, quantization=quantization)
    changes = [each for each in found.actions if each.mnemonic == mnemonic]
    quantized = [each for each in found.actions if each.mnemonic == "Quantize"]
    assert len(changes) == len(quantized) == 2
    for change, quantize in zip(changes, quantized, strict=True):
        makers = {item.artifact.action for item in change.inputs if isinstance(item.artifact, DerivedArtifact)}
        assert any(identifier.endswith("MergeStatistics") for identifier in makers)
        assert change.identifier in {
            item.artifact.action for item in quantize.inputs if isinstance(item.artifact, DerivedArtifact)
        }
        assert isinstance(change.command, StageCall)
        assert dict(change.command.parameters) == parameters
        function, call = importlib.import_module(change.command.function.partition(":")[0]).run, change.command
        given = [name for part in (call.inputs, call.outputs, call.parameters, call.plugins) for name, _ in part]
        assert sorted(given) == sorted(inspect.signature(function).parameters)


def test_the_strength_of_smoothing_is_checked(tmp_path: Path) -> None:
    smooth = ('calibration = ":text"', 'calibration_method = "smoothquant"')
    with pytest.raises(WorkspaceErrors, match=r"`smoothing` is 1\.5, and not from 0 to 1"):
        analysed(_workspace(tmp_path, *smooth, "smoothing = 1.5", quantization="int8_int8_f16"), "//models:w")
    with pytest.raises(WorkspaceErrors, match="smoothing is of smoothquant, not of awq"):
        analysed(_workspace(tmp_path, 'calibration = ":text"', "smoothing = 0.5"), "//models:w")


def test_a_scheme_that_a_method_does_not_fit_is_refused_with_what_does(tmp_path: Path) -> None:
    awq = ('calibration = ":text"', 'calibration_method = "awq"')
    with pytest.raises(WorkspaceErrors, match="awq does not calibrate q0f16"):
        analysed(_workspace(tmp_path, *awq, quantization="q0f16"), "//models:w")
    with pytest.raises(WorkspaceErrors, match="awq does not calibrate e4m3_e4m3_f16"):
        analysed(_workspace(tmp_path, *awq, quantization="e4m3_e4m3_f16"), "//models:w")


def test_gptq_and_maximum_are_refused_where_nothing_stores_what_they_choose(tmp_path: Path) -> None:
    for method, quantization in (("gptq", "e4m3_e4m3_f16"), ("gptq", "q0f16"), ("maximum", "q4f16_1")):
        lines = ('calibration = ":text"', f'calibration_method = "{method}"')
        with pytest.raises(WorkspaceErrors, match=f"{method} does not calibrate {quantization}"):
            analysed(_workspace(tmp_path, *lines, quantization=quantization), "//models:w")
    with pytest.raises(WorkspaceErrors, match="act_order is of gptq, not of awq"):
        analysed(_workspace(tmp_path, 'calibration = ":text"', "act_order = true"), "//models:w")


@pytest.mark.parametrize("quantization", ["q4f16_1", "q8f16_ft", "q4f16_autoawq", "mxfp4_bf16", "q4_k_f16", "q0f16"])
def test_smoothquant_is_refused_where_activations_are_not_rounded(tmp_path: Path, quantization: str) -> None:
    lines = ('calibration = ":text"', 'calibration_method = "smoothquant"')
    with pytest.raises(WorkspaceErrors) as caught:
        analysed(_workspace(tmp_path, *lines, quantization=quantization), "//models:w")
    (error,) = caught.value.errors
    assert error.message.startswith(f"smoothquant does not calibrate {quantization}: it ")
    assert error.location is not None
    text = (tmp_path / error.location.path).read_text().splitlines()
    assert error.location.line is not None
    assert text[error.location.line - 1] == lines[1]


def test_one_scheme_that_rounds_weights_alone_is_enough_to_refuse_smoothquant(tmp_path: Path) -> None:
    table = '{ default = "int8_int8_f16", "lm_head" = "q8f16_1" }'
    method = 'calibration = ":text"\ncalibration_method = "smoothquant"\n'
    target = f'[[quantized_weights]]\nname = "w"\nmodel = ":m"\nquantization = {table}\n{method}'
    workspace = model_workspace(tmp_path, _TEXT + target, **{"models/text.txt": "a text"})
    with pytest.raises(WorkspaceErrors, match="smoothquant does not calibrate q8f16_1: it rounds weights alone"):
        analysed(workspace, "//models:w")


def test_methods_calibrate_the_schemes_whose_encoders_store_what_they_choose() -> None:
    for name in schemes.NAMES:
        has_grid = isinstance(encoder(schemes.scheme(name)), GridEncoder)
        assert (methods()["gptq"].refusal(schemes.scheme(name)) == "") == has_grid
        stores = isinstance(encoder(schemes.scheme(name)), StaticScalesEncoder)
        assert stores or methods()["maximum"].refusal(schemes.scheme(name))


def test_every_scheme_of_integers_has_a_default_and_only_one() -> None:
    for name in schemes.NAMES:
        scheme = schemes.scheme(name)
        defaults = [method.name for method in methods().values() if method.is_default(scheme)]
        assert len(defaults) <= 1
        assert not [method for method in defaults if methods()[method].refusal(scheme)]
        if scheme.kind in ("group-quant", "awq", "ft-quant"):
            assert defaults == ["awq"]


@pytest.mark.parametrize("rule", ["model_package", "gguf_package"])
def test_packages_are_calibrated_as_weights_are(tmp_path: Path, rule: str) -> None:
    platform = 'platform = ":v3"\n' if rule == "model_package" else ""
    package = f'[[{rule}]]\nname = "p"\nmodel = ":m"\nquantization = "q4f16_1"\ncalibration = ":text"\n{platform}'
    workspace = model_workspace(tmp_path, _TEXT + package, **{"models/text.txt": "a text"})
    searching = action(analysed(workspace, "//models:p"), "PlanSearch")
    assert searching.identifier == "//models:p PlanSearch"


def test_methods_that_have_to_be_named_are_told(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceErrors) as caught:
        _discovered(tmp_path, 'calibration = ":text"', quantization="e5m2_e5m2_f16")
    (error,) = caught.value.errors
    assert error.message.startswith("no method calibrates e5m2_e5m2_f16 unless it is named")
    assert error.advice == ('write calibration_method = "smoothquant", or leave `calibration` out',)
