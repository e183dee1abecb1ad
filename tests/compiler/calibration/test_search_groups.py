"""What is searched together, by an action of its own, and that its results are those of one search over a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from mlcbuild.compiler.calibration.search_groups import search_groups
from mlcbuild.compiler.calibration.statistics import ObservedInput
from mlcbuild.compiler.manifest import read_manifest, write_manifest
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.compiler.stages import merge_scales, plan_search, search_scales
from tests.compiler import schemes
from tests.compiler.calibration import outlier_model
from tests.compiler.resolving import parameters_of, write_resolved

_LAYER = "model.layers.0"


def _observed(*matrices: str) -> ObservedInput:
    return ObservedInput(file=f"{matrices[0]}.safetensors", matrices=matrices, width=1, rows=1)


def test_matrices_are_searched_with_those_whose_scales_they_absorb() -> None:
    names = [f"{_LAYER}.{each}.weight" for each in ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj")]
    inputs = [_observed(name) for name in (*names, f"{_LAYER}.mlp.down_proj.weight", "model.embed_tokens.weight")]
    found = search_groups(parameters_of(outlier_model.CONFIG), inputs)
    assert found == [tuple(inputs[:2]), tuple(inputs[2:4]), (inputs[4],)]


def test_matrices_that_share_an_observed_input_are_searched_together() -> None:
    listed = parameters_of(outlier_model.CONFIG)
    shared = _observed(f"{_LAYER}.self_attn.qkv_proj.weight", f"{_LAYER}.mlp.gate_up_proj.weight")
    others = [_observed(f"{_LAYER}.{each}.weight") for each in ("mlp.down_proj", "self_attn.o_proj")]
    assert search_groups(listed, [shared, *others]) == [(shared, *others)]


@pytest.mark.parametrize("quantization", ["q4f16_1", "mixed"])
def test_groups_of_two_shards_have_the_bytes_of_one_search(quantization: str, tmp_path: Path) -> None:
    scheme: QuantizationScheme = schemes.scheme("q4f16_1")
    if quantization == "mixed":
        table = {"default": "q4f16_1", "*.down_proj": "q3f16_1", "*.o_proj": "q0f16"}
        scheme = schemes.mixed(outlier_model.CONFIG, table)
    models = outlier_model.make_models()
    outlier_model.write_statistics(tmp_path / "statistics", models.outliers, outlier_model.texts(4, seed=1))
    write_resolved(tmp_path, outlier_model.CONFIG)
    parameters, listed = tmp_path / "parameters.json", read_parameters(tmp_path / "parameters.json")
    halves = [
        {name: models.tensors[name] for name in models.tensors if ("layers.1." in name) == is_last}
        for is_last in (False, True)
    ]
    shards = []
    (tmp_path / "shards").mkdir()
    for number, tensors in enumerate(halves):
        shards.append(tmp_path / "shards" / f"shard_{number}.safetensors")
        save_file(tensors, shards[-1])
    entries = [{"file": path.name, "tensors": sorted(tensors)} for path, tensors in zip(shards, halves, strict=True)]
    write_manifest(tmp_path / "imported.json", {"shards": entries})

    def searched(given: list[Path], statistics: Path, out: Path) -> Path:
        search_scales.run(
            shards=given,
            parameters=parameters,
            statistics=statistics,
            scales=out,
            scheme=scheme,
            encoder=schemes.encoder_class(scheme),
        )
        return out

    plan_search.run(
        parameters=parameters,
        imported=tmp_path / "imported.json",
        index=tmp_path / "statistics/statistics.json",
        groups=tmp_path / "groups",
        manifest=tmp_path / "plan.json",
    )
    found = []
    groups = read_manifest((tmp_path / "plan.json").read_bytes())["groups"]
    assert len(groups) == 4
    for number, group in enumerate(groups):
        folder = tmp_path / f"group_{number}"
        folder.mkdir()
        (folder / "statistics.json").symlink_to(tmp_path / "groups" / group["index"])
        for file in group["statistics"]:
            (folder / file).symlink_to(tmp_path / "statistics" / file)
        layers = {name.split(".")[2] for one in _inputs(folder) for name in one}
        assert [each["number"] for each in group["shards"]] == sorted(map(int, layers))
        given = [tmp_path / "shards" / each["file"] for each in group["shards"]]
        found.append(searched(given, folder, tmp_path / f"scales_{number}.safetensors"))
    merged = tmp_path / "merged.safetensors"
    merge_scales.run(found=found[::-1], parameters=parameters, scales=merged)
    whole = searched(shards, tmp_path / "statistics", tmp_path / "whole.safetensors")
    again = tmp_path / "again.safetensors"
    merge_scales.run(found=[whole], parameters=parameters, scales=again)
    assert merged.read_bytes() == again.read_bytes()
    kept = {name.partition(":")[0] for name in _tensors(merged)}
    assert kept
    assert kept <= {parameter.name for parameter in listed.parameters}
    if quantization == "mixed":
        assert not [name for name in kept if "o_proj" in name]


def _inputs(folder: Path) -> list[list[str]]:
    return [one["matrices"] for one in json.loads((folder / "statistics.json").read_text())["inputs"]]


def _tensors(path: Path) -> list[str]:
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return [name for name in header if name != "__metadata__"]
