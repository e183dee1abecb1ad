"""What the built-in rules make of targets: actions, what they provide, and the mistakes that only a rule can see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.engine.action import DerivedArtifact, DiscoveredArtifacts, Input, SourceArtifact, StageCall, ToolCall
from mlcbuild.errors import WorkspaceErrors
from mlcbuild.rules import host
from mlcbuild.rules.analysis import with_errors_of_analysis
from mlcbuild.rules.registry import load_rules
from mlcbuild.workspace.loader import LoadErrors, load
from tests.compiler.tiny_llama import TINY_LLAMA
from tests.rules.world import action, analysed, write

TOOL = '[[tool]]\nname = "sh"\npath = "/bin/sh"\narguments = ["-eu"]\n'
MODEL = """
[[platform]]
name = "v3"
kind = "cpu"
cpu = "x86-64-v3"

[[model]]
name = "m"
source = "weights"

[[model]]
name = "shape"
config = "config.json"
"""


CONFIG = json.dumps(TINY_LLAMA)


def _maker(item: Input) -> str:
    """The action that makes an input."""
    assert isinstance(item.artifact, DerivedArtifact)
    return item.artifact.action


def model_workspace(root: Path, targets: str, **files: str) -> Path:
    return write(
        root,
        {
            "models/BUILD.toml": MODEL + targets,
            "models/config.json": CONFIG,
            "models/weights/config.json": CONFIG,
            "models/weights/model.safetensors": "",
            **files,
        },
    )


def test_a_command_lays_inputs_by_package_and_fills_placeholders_in(tmp_path: Path) -> None:
    text = (
        TOOL
        + """
[[command]]
name = "join"
tool = ":sh"
inputs = ["b.txt", "folder", ":made"]
outputs = ["joined", "side/"]
arguments = ["-c", "cat {inputs} > {output:joined}", "{outputs}", "{input:folder}"]
environment = { LEVEL = "3" }

[[command]]
name = "made"
tool = ":sh"
outputs = ["made.txt"]
"""
    )
    files = {"a/BUILD.toml": text, "a/b.txt": "", "a/folder/x": "", "a/folder/y/z": "", "a/folder/.hidden": ""}
    analysis = analysed(write(tmp_path, files), "//a:join")
    (join,) = (each for each in analysis.actions if each.identifier == "//a:join Command")
    assert {each.path: each.artifact for each in join.inputs} == {
        "in/a/b.txt": SourceArtifact(path="a/b.txt"),
        "in/a/folder/x": SourceArtifact(path="a/folder/x"),
        "in/a/folder/y/z": SourceArtifact(path="a/folder/y/z"),
        "in/a/made.txt": DerivedArtifact(action="//a:made Command", path="out/made.txt"),
    }
    assert join.command == ToolCall(
        arguments=(
            "/bin/sh",
            "-eu",
            "-c",
            "cat in/a/b.txt in/a/folder/x in/a/folder/y/z in/a/made.txt > out/joined",
            "out/joined",
            "out/side/",
            "in/a/folder/x",
            "in/a/folder/y/z",
        )
    )
    assert join.outputs == ("out/joined", "out/side/")
    assert join.environment == (("LEVEL", "3"),)
    assert join.toolchains == ("program:/bin/sh",)


def test_a_tool_of_the_workspace_is_an_input(tmp_path: Path) -> None:
    text = """
[[tool]]
name = "own"
executable = "run.sh"
[[command]]
name = "c"
tool = ":own"
outputs = ["o"]
"""
    analysis = analysed(write(tmp_path, {"a/BUILD.toml": text, "a/run.sh": ""}), "//a:c")
    command = action(analysis, "Command")
    assert [(each.path, each.artifact) for each in command.inputs] == [("tool/run.sh", SourceArtifact(path="a/run.sh"))]
    assert command.command == ToolCall(arguments=("tool/run.sh",))
    assert command.toolchains == ()


def test_the_mistakes_that_rules_see_are_told_together_with_their_places(tmp_path: Path) -> None:
    text = (
        TOOL
        + """
[[tool]]
name = "neither"
[[command]]
name = "escapes"
tool = ":sh"
outputs = ["../o"]
[[command]]
name = "unknown-output"
tool = ":sh"
outputs = ["o"]
arguments = ["{output:p}"]
[[http_file]]
name = "scheme"
urls = ["ftp://host/x"]
[[pypi_file]]
name = "pin"
package = "p"
version = "1"
path = "x"
sha256 = "abc"
[[hf_repository]]
name = "branch"
repository = "o/n"
revision = "main"
files = ["config.json"]
"""
    )
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(write(tmp_path, {"a/BUILD.toml": text}), "//a:all")
    assert str(raised.value) == (
        "a/BUILD.toml:7:8: a tool has either `path` or `executable` in //a:neither\n"
        'a/BUILD.toml:11:11: output "../o" is not a path below the output folder in //a:escapes\n'
        'a/BUILD.toml:16:13: no output "p" in //a:unknown-output\n'
        "  known: o\n"
        'a/BUILD.toml:19:8: "ftp://host/x" is no http or https address in //a:scheme\n'
        'a/BUILD.toml:25:10: "abc" is not a SHA-256 in //a:pin\n'
        "  64 lower-case hexadecimal digits; `mlcbuild fetch --update` writes them\n"
        'a/BUILD.toml:29:12: revision "main" is not a commit in //a:branch\n'
        "  a branch or tag moves; write the 40 hexadecimal digits of the commit, or\n"
        '  branch = "main" in the place of revision: `mlcbuild fetch --update` finds its commit'
    )


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
    taken = {_maker(item) for item in action(analysis, "Export").inputs if item.path.endswith("model.json")}
    assert taken == {"//models:shape ResolveModel"}
    taken = {_maker(item) for item in action(analysis, "Lower").inputs if item.path.endswith("model.json")}
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


CUDA = """
[[platform]]
name = "gpu"
kind = "cuda"
arch = ["sm_90a", "sm_80"]

[[model_library]]
name = "on-gpu"
model = ":shape"
quantization = "q4f16_1"
platform = ":gpu"
"""
CUDA_MANIFEST = json.dumps({"version": 1, "kernels": ["kernel_aa"]}).encode()


def test_a_gpu_platform_schedules_for_the_lowest_architecture_and_names_all_that_tvm_would_ask_for(
    tmp_path: Path,
) -> None:
    analysis = analysed(model_workspace(tmp_path, CUDA), "//models:on-gpu")
    call = action(analysis, "Phase1").command
    assert isinstance(call, StageCall)
    assert dict(call.parameters)["target"] == {
        "kind": "cuda",
        "arch": "sm_80",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
        "thread_warp_size": 32,
        "host": {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"},
    }


def test_a_kernel_of_a_gpu_goes_on_to_each_architecture_and_one_fat_binary(tmp_path: Path) -> None:
    analysis = analysed(model_workspace(tmp_path, CUDA), "//models:on-gpu")
    partition = action(analysis, "Partition")
    assert partition.discoverer is not None
    discovery = partition.discoverer(discovering=partition.identifier, manifest=CUDA_MANIFEST)
    made = {each.identifier.removeprefix("//models:on-gpu "): each for each in discovery.actions}
    assert list(made) == [
        "ScheduleKernel kernel_aa",
        "CompileKernel kernel_aa",
        "CompileDevice kernel_aa sm_80",
        "CompileDevice kernel_aa sm_90a",
        "FatBinary kernel_aa",
    ]
    assert made["CompileKernel kernel_aa"].outputs == (
        "out/kernel_aa.cu",
        "out/kernel_aa.launch.json",
        "out/kernel_aa.o",
    )
    first = made["CompileDevice kernel_aa sm_80"]
    assert isinstance(first.command, StageCall)
    assert (first.toolchains, dict(first.command.parameters)) == (("nvrtc",), {"arch": "sm_80"})
    assert {
        group: [each.path for each in members if isinstance(each, DerivedArtifact)]
        for group, members in discovery.groups
    } == {
        "device_code": ["out/kernel_aa.fatbin"],
        "launches": ["out/kernel_aa.launch.json"],
        "objects": ["out/kernel_aa.o"],
        "signatures": ["out/kernel_aa.signature.json"],
    }
    link = action(analysis, "Link").command
    assert isinstance(link, StageCall)
    assert [group for group, _ in link.groups] == ["device_code", "launches", "objects"]


def test_one_architecture_needs_no_fat_binary_and_a_toolkit_is_keyed_by_its_content(tmp_path: Path) -> None:
    text = CUDA.replace('["sm_90a", "sm_80"]', '["sm_90"]\ntoolkit = "/opt/cuda/"')
    partition = action(analysed(model_workspace(tmp_path, text), "//models:on-gpu"), "Partition")
    assert partition.discoverer is not None
    discovery = partition.discoverer(discovering=partition.identifier, manifest=CUDA_MANIFEST)
    device = discovery.actions[-1]
    assert (device.mnemonic, device.toolchains) == ("CompileDevice", ("cuda_toolkit:/opt/cuda",))
    assert dict(discovery.groups)["device_code"] == (device.output("out/kernel_aa.sm_90.cubin"),)


def test_mistakes_in_platforms_are_told_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "program_path", lambda name: f"/usr/bin/{name}")  # whatever is installed here
    text = """
[[platform]]
name = "no-cpu"
kind = "cpu"
[[platform]]
name = "no-arch"
kind = "cuda"
[[platform]]
name = "bad-arch"
kind = "cuda"
arch = ["sm_80", "sm_9O"]
[[platform]]
name = "arch-of-cpu"
kind = "cpu"
cpu = "x86-64-v3"
arch = ["sm_80"]
[[platform]]
name = "relative"
kind = "cuda"
arch = ["sm_80"]
toolkit = "cuda"
[[platform]]
name = "arm"
kind = "cuda"
arch = ["sm_90"]
host = "aarch64-linux-gnu"
"""
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(write(tmp_path, {"a/BUILD.toml": text}), "//a:all")
    lines = [line for line in str(raised.value).splitlines() if not line.startswith("  known")]
    assert lines == [
        "a/BUILD.toml:4:8: no cpu in //a:no-cpu",
        "  name the processor of x86_64-linux-gnu, as LLVM does",
        "a/BUILD.toml:7:8: no arch in //a:no-arch",
        '  name the GPU architectures, for example arch = ["sm_80", "sm_90"]',
        'a/BUILD.toml:11:8: unknown GPU architecture "sm_9O" in //a:bad-arch',
        "a/BUILD.toml:16:8: a platform of kind cpu has no arch in //a:arch-of-cpu",
        'a/BUILD.toml:21:11: toolkit "cuda" is not absolute in //a:relative',
        '  for example "/usr/local/cuda-13.0"',
        "a/BUILD.toml:24:8: no cpu in //a:arm",
        "  name the processor of aarch64-linux-gnu, as LLVM does",
    ]


def test_every_mistake_of_a_platform_is_told_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "program_path", lambda name: f"/usr/bin/{name}")  # whatever is installed here
    text = """
[[platform]]
name = "gpu"
kind = "cuda"
arch = ["sm_8O", "sm_90", "sm_9O"]
cpu = "x86-64-v33"
features = ["avx2"]
toolkit = "cuda"
[[platform]]
name = "arm"
kind = "cpu"
cpu = "skylake"
host = "aarch64-linux-gnu"
[[platform]]
name = "windows"
kind = "cpu"
cpu = "x86-64-v3"
host = "x86_64-pc-windows-msvc"
"""
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(write(tmp_path, {"a/BUILD.toml": text}), "//a:all")
    assert [line for line in str(raised.value).splitlines() if not line.startswith("  ")] == [
        'a/BUILD.toml:5:8: unknown GPU architecture "sm_8O" in //a:gpu',
        'a/BUILD.toml:5:8: unknown GPU architecture "sm_9O" in //a:gpu',
        'a/BUILD.toml:6:7: unknown processor "x86-64-v33" for x86_64-linux-gnu in //a:gpu',
        'a/BUILD.toml:7:12: "avx2" is no feature to add or to take away in //a:gpu',
        'a/BUILD.toml:8:11: toolkit "cuda" is not absolute in //a:gpu',
        'a/BUILD.toml:12:7: unknown processor "skylake" for aarch64-linux-gnu in //a:arm',
        'a/BUILD.toml:18:8: libraries cannot be linked for the host "x86_64-pc-windows-msvc": its system is not Linux'
        " in //a:windows",
    ]


def test_a_host_that_this_machine_has_no_linker_for_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
[[platform]]
name = "arm"
kind = "cpu"
cpu = "cortex-a76"
host = "aarch64-linux-gnu"
"""
    root = write(tmp_path, {"a/BUILD.toml": text})
    monkeypatch.setattr(host, "program_path", lambda name: "" if name == "aarch64-linux-gnu-ld" else f"/bin/{name}")
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(root, "//a:all")
    assert str(raised.value).splitlines() == [
        'a/BUILD.toml:6:8: this machine has no linker for the host "aarch64-linux-gnu" in //a:arm',
        "  install aarch64-linux-gnu-ld (Debian's package binutils-aarch64-linux-gnu)",
    ]


def test_a_library_is_linked_by_the_linker_for_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "program_path", lambda name: f"/usr/bin/{name}")
    targets = """
[[platform]]
name = "arm"
kind = "cpu"
cpu = "cortex-a76"
host = "aarch64-linux-gnu"
[[model_library]]
name = "lib"
model = ":shape"
quantization = "q0f16"
platform = ":arm"
"""
    analysis = analysed(model_workspace(tmp_path, targets), "//models:lib")
    assert action(analysis, "Link").toolchains == ("cross_ld:aarch64",)


def test_what_analysis_finds_of_sound_targets_is_told_with_the_errors_of_the_load(tmp_path: Path) -> None:
    text = """
[[platform]]
name = "gpu"
kind = "cuda"
arch = ["sm_9O"]
[[platform]]
name = "unknown-kind"
kind = "cdua"
[[model]]
name = "shape"
[[model_library]]
name = "needs-what-is-wrong"
model = ":shape"
quantization = "q0f16"
platform = ":unknown-kind"
"""
    rules = load_rules(tmp_path, ())
    root = write(tmp_path, {"a/BUILD.toml": text})
    with pytest.raises(LoadErrors) as raised:
        load(root, {name: rule.schema for name, rule in rules.items()}, ["//a:all"])
    assert sorted(str(label) for label in raised.value.sound.targets) == ["//a:gpu", "//a:shape"]
    together = with_errors_of_analysis(raised.value, rules)
    assert [str(error).splitlines()[0] for error in together.errors] == [
        'a/BUILD.toml:5:8: unknown GPU architecture "sm_9O" in //a:gpu',
        'a/BUILD.toml:8:8: unknown kind "cdua" in //a:unknown-kind',
        "a/BUILD.toml:10:8: a model has `source`, or `config` where only its shape is needed in //a:shape",
    ]
