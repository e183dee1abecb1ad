"""Models, libraries and packages: the actions that they announce, and which attributes reach which stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.engine.action import DerivedArtifact, DiscoveredArtifacts, SourceArtifact, StageCall
from mlcbuild.errors import WorkspaceErrors
from tests.rules.model_workspaces import CUDA, maker, model_workspace
from tests.rules.world import action, analysed, write


def test_equal_stages_of_two_targets_differ_in_their_names_alone(tmp_path: Path) -> None:
    targets = "".join(
        f'[[model_library]]\nname = "{name}"\nmodel = ":shape"\nquantization = "q4f16_1"\nplatform = ":v3"\n'
        for name in ("one", "two")
    )
    analysis = analysed(model_workspace(tmp_path, targets), "//models:one", "//models:two")
    first, second = (each for each in analysis.actions if each.mnemonic == "ConfigureModel")
    assert first.command == second.command
    assert first.inputs == second.inputs
    assert first.outputs == second.outputs
    assert first.identifier != second.identifier


def test_partition_announces_two_actions_a_kernel_alike_for_every_target(tmp_path: Path) -> None:
    targets = "".join(
        f'[[model_library]]\nname = "{name}"\nmodel = ":shape"\nquantization = "q4f16_1"\nplatform = ":v3"\n'
        for name in ("one", "two")
    )
    analysis = analysed(model_workspace(tmp_path, targets), "//models:one", "//models:two")
    manifest = json.dumps({"version": 1, "kernels": ["kernel_aa", "kernel_bb"]}).encode()
    partitions = [each for each in analysis.actions if each.mnemonic == "Partition"]
    assert all(each.discoverer for each in partitions)
    discoveries = [
        each.discoverer(discovering=each.identifier, manifest=manifest) for each in partitions if each.discoverer
    ]
    assert [each.mnemonic for each in discoveries[0].actions] == ["ScheduleKernel", "CompileKernel"] * 2
    first, second = (discovery.actions for discovery in discoveries)
    assert [each.command for each in first] == [each.command for each in second]
    assert {each.identifier for each in first}.isdisjoint(each.identifier for each in second)
    groups = dict(discoveries[0].groups)
    assert len(groups["objects"]) == len(groups["signatures"]) == 2
    link = next(each for each in analysis.actions if each.mnemonic == "Link")
    assert DiscoveredArtifacts(action=partitions[0].identifier, group="objects") in [
        each.artifact for each in link.inputs
    ]
    discoverer = partitions[0].discoverer
    assert discoverer is not None
    with pytest.raises(ValueError, match="version 2"):
        discoverer(discovering="x", manifest=b'{"version": 2}')


def test_actions_of_kernels_are_described_by_the_manifest_and_equal_without_it(tmp_path: Path) -> None:
    analysis = analysed(model_workspace(tmp_path, CUDA), "//models:on-gpu")
    partition = action(analysis, "Partition")
    assert partition.discoverer is not None
    kernel = f"kernel_{'0123456789abcdef' * 2}"
    described = {
        "operation": "dequantize_matmul",
        "functions": ["batch_prefill", "prefill"],
        "parameters": ["model.layers.*.self_attn.qkv_proj"],
        "shape": [1, "n", 6144],
        "matrix": [6144, 4096],
    }
    old: dict[str, Any] = {"version": 1, "kernels": [kernel]}
    manifests = (old | {"descriptions": {kernel: described}}, old)
    named, plain = (
        partition.discoverer(discovering=partition.identifier, manifest=json.dumps(manifest).encode()).actions
        for manifest in manifests
    )
    assert named == plain
    name = "dequantize_matmul qkv_proj 6144×4096 ·×n prefill+1 (01234567)"
    assert [each.title.removeprefix("//models:on-gpu ") for each in named] == [
        f"ScheduleKernel {name}",
        f"CompileKernel {name}",
        f"CompileDevice {name} sm_80",
        f"CompileDevice {name} sm_90a",
        f"FatBinary {name}",
    ]
    assert [each.title for each in plain] == [each.identifier for each in plain]
    assert named[0].description is not None
    details = dict(named[0].description.details)
    assert (details["kernel"], details["functions"]) == (kernel, ("batch_prefill", "prefill"))
    wrong = json.dumps(old | {"descriptions": {kernel: {}}}).encode()
    with pytest.raises(ValueError, match="description without its parts"):
        partition.discoverer(discovering=partition.identifier, manifest=wrong)


def test_a_kernel_of_two_models_is_one_action_with_a_name_in_each(tmp_path: Path) -> None:
    targets = "".join(
        f'[[model_library]]\nname = "{name}"\nmodel = ":shape"\nquantization = "q4f16_1"\nplatform = ":v3"\n'
        for name in ("one", "two")
    )
    analysis = analysed(model_workspace(tmp_path, targets), "//models:one", "//models:two")
    discovered = []
    for partition, function in zip(
        (each for each in analysis.actions if each.mnemonic == "Partition"), ("prefill", "encode"), strict=True
    ):
        description = {"operation": "add", "functions": [function], "parameters": [], "shape": ["n"], "matrix": []}
        manifest = {"version": 1, "kernels": ["kernel_aa"], "descriptions": {"kernel_aa": description}}
        assert partition.discoverer is not None
        announced = partition.discoverer(discovering=partition.identifier, manifest=json.dumps(manifest).encode())
        discovered.append(announced.actions)
    first, second = discovered
    assert [each.command for each in first] == [each.command for each in second]
    assert [each.title for each in first] == [f"//models:one {each.mnemonic} add n prefill (aa)" for each in first]
    assert [each.title for each in second] == [f"//models:two {each.mnemonic} add n encode (aa)" for each in second]


def test_weights_are_quantized_one_action_a_shard(tmp_path: Path) -> None:
    targets = '[[quantized_weights]]\nname = "w"\nmodel = ":m"\nquantization = "q4f32_1"\n'
    analysis = analysed(model_workspace(tmp_path, targets), "//models:w")
    imported = action(analysis, "ImportWeights")
    assert imported.discoverer is not None
    manifest = json.dumps({"version": 1, "shards": [{"file": "shard_0.safetensors"}, {"file": "shard_1.safetensors"}]})
    discovery = imported.discoverer(discovering=imported.identifier, manifest=manifest.encode())
    assert [each.outputs for each in discovery.actions] == [
        ("out/params_shard_0.bin", "out/records_00000.json"),
        ("out/params_shard_1.bin", "out/records_00001.json"),
    ]
    call = discovery.actions[1].command
    assert isinstance(call, StageCall)
    assert dict(call.parameters) == {"encode": "raw", "index": 1}
    assert dict(call.plugins) == {
        "scheme": "mlcbuild.compiler.quantization.schemes.q4f32_1:SCHEME",
        "encoder": "mlcbuild.compiler.quantization.group.encoder:GroupEncoder",
    }


def test_a_shape_alone_has_no_weights_to_package(tmp_path: Path) -> None:
    targets = '[[model_package]]\nname = "p"\nmodel = ":shape"\nquantization = "q4f16_1"\nplatform = ":v3"\n'
    with pytest.raises(WorkspaceErrors, match=r"BUILD.toml:\d+:\d+: model //models:shape has no weights") as raised:
        analysed(model_workspace(tmp_path, targets), "//models:p")
    assert "give the model a `source`" in str(raised.value)


def test_a_library_needs_a_platform_of_its_own_or_a_default(tmp_path: Path) -> None:
    targets = '[[model_library]]\nname = "l"\nmodel = ":shape"\nquantization = "q4f16_1"\n'
    with pytest.raises(WorkspaceErrors, match="no platform"):
        analysed(model_workspace(tmp_path, targets), "//models:l")
    model_workspace(tmp_path, targets, **{"BUILD.toml": '[workspace]\nname = "t"\ndefault_platform = "//models:v3"\n'})
    lower = action(analysed(tmp_path, "//models:l"), "Lower")
    assert isinstance(lower.command, StageCall)
    assert dict(lower.command.parameters)["target"] == {
        "kind": "llvm",
        "mtriple": "x86_64-linux-gnu",
        "mcpu": "x86-64-v3",
    }


def test_overrides_reach_no_stage_but_the_one_that_applies_them(tmp_path: Path) -> None:
    targets = (
        '[[model_library]]\nname = "l"\nmodel = ":shape"\nquantization = "q4f16_1"\nplatform = ":v3"\n'
        "overrides = { max_batch_size = 4 }\n"
    )
    analysis = analysed(model_workspace(tmp_path, targets), "//models:l")
    holding = [
        each.mnemonic
        for each in analysis.actions
        if isinstance(each.command, StageCall) and "max_batch_size" in str(each.command.parameters)
    ]
    assert holding == ["ConfigureModel"]
    # Export takes the model's own sizes, so that every library of a model and quantization shares it.
    taken = {maker(item) for item in action(analysis, "Export").inputs if item.path.endswith("model.json")}
    assert taken == {"//models:shape ResolveModel"}
    taken = {maker(item) for item in action(analysis, "Lower").inputs if item.path.endswith("model.json")}
    assert taken == {"//models:l ConfigureModel"}


def test_a_bare_config_and_one_that_is_imported_are_read_by_their_family(tmp_path: Path) -> None:
    analysis = analysed(model_workspace(tmp_path, ""), "//models:all")
    reading = {each.owner: each.inputs[0].artifact for each in analysis.actions if each.mnemonic == "ResolveModel"}
    assert reading == {
        "//models:m": DerivedArtifact(action="//models:m ImportConfig", path="out/config.json"),
        "//models:shape": SourceArtifact(path="models/config.json"),
    }


def test_families_are_given_to_no_stage_but_those_that_read_models(tmp_path: Path) -> None:
    targets = '[[model_package]]\nname = "p"\nmodel = ":m"\nquantization = "q4f16_1"\nplatform = ":v3"\n'
    analysis = analysed(model_workspace(tmp_path, targets), "//models:p")
    named = {
        each.mnemonic
        for each in analysis.actions
        if isinstance(each.command, StageCall) and "compiler.families" in str(each.command.plugins)
    }
    assert named == {"ImportConfig", "ResolveModel", "Export"}


def test_a_fetch_without_a_pin_is_never_kept(tmp_path: Path) -> None:
    text = '[[local_file]]\nname = "f"\npath = "/x/y.bin"\n'
    fetch = action(analysed(write(tmp_path, {"a/BUILD.toml": text}), "//a:f"), "Fetch")
    assert fetch.cache.value == "none"
    pinned = text + f'sha256 = "{"0" * 64}"\n'
    fetch = action(analysed(write(tmp_path, {"a/BUILD.toml": pinned}), "//a:f"), "Fetch")
    assert fetch.cache.value == "all"
    assert fetch.pinned_content == "0" * 64
    assert fetch.requirements.network
    assert fetch.requirements.execution_hints == (("path", "/x/y.bin"),)
