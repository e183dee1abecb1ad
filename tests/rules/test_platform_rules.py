"""Platforms: what is compiled for each, by which linker, and mistakes in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlcbuild.engine.action import DerivedArtifact, StageCall
from mlcbuild.errors import WorkspaceErrors
from mlcbuild.rules import analysis as analysis_module
from mlcbuild.rules.kernels import KernelActions
from mlcbuild.tuning.record import platform_key
from tests.rules.model_workspaces import CUDA, CUDA_MANIFEST, model_workspace
from tests.rules.world import action, analysed, write


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


def test_kernels_in_triton_are_compiled_beside_the_host_code_that_starts_them(tmp_path: Path) -> None:
    text = CUDA.replace('["sm_90a", "sm_80"]', '["sm_90"]\nkernels = "triton"')
    analysis = analysed(model_workspace(tmp_path, text), "//models:on-gpu")
    for phase in ("phase0", "phase1"):
        command = action(analysis, phase.capitalize()).command
        (passes,) = (plugin for name, plugin in command.plugins if name == "backend")  # type: ignore[union-attr]
        assert passes == f"mlcbuild.compiler.backends.cuda.{phase}_triton:PASSES"
    partition = action(analysis, "Partition")
    assert isinstance(partition.discoverer, KernelActions)
    assert "triton" in partition.discoverer.toolchains
    started = {"name": "triton_x_1", "function": "somewhere.kernels:x", "warps": 4}
    manifest = {
        "version": 1,
        "kernels": ["kernel_aa", "kernel_bb", "kernel_cc"],
        "device_kernels": {"kernel_bb": [started], "kernel_cc": [started]},
    }
    discovery = partition.discoverer(discovering=partition.identifier, manifest=json.dumps(manifest).encode())
    made = {each.identifier.removeprefix("//models:on-gpu "): each for each in discovery.actions}
    assert list(made) == [
        "ScheduleKernel kernel_aa",
        "CompileKernel kernel_aa",
        "CompileDevice kernel_aa sm_90",
        "ScheduleKernel kernel_bb",
        "CompileTriton triton_x_1 sm_90",
        "CompileKernel kernel_bb",
        "ScheduleKernel kernel_cc",
        "CompileKernel kernel_cc",
    ]
    compiled = made["CompileTriton triton_x_1 sm_90"]
    assert compiled.toolchains == ("triton",)
    assert isinstance(compiled.command, StageCall)
    assert dict(compiled.command.parameters) == {"arch": "sm_90", "name": "triton_x_1", "warps": 4}
    assert dict(compiled.command.plugins) == {"kernel": "somewhere.kernels:x"}
    assert {
        group: [each.path for each in members if isinstance(each, DerivedArtifact)]
        for group, members in discovery.groups
        if group != "signatures"
    } == {
        "device_code": ["out/kernel_aa.sm_90.cubin", "out/triton_x_1.sm_90.cubin"],
        "launches": ["out/kernel_aa.launch.json", "out/triton_x_1.launch.json"],
        "objects": ["out/kernel_aa.o", "out/kernel_bb.o", "out/kernel_cc.o"],
    }


def test_what_calls_a_library_is_compiled_once_and_linked_beside_the_kernels(tmp_path: Path) -> None:
    text = CUDA.replace('["sm_90a", "sm_80"]', '["sm_90"]\nlibraries = ["cublas"]')
    partition = action(analysed(model_workspace(tmp_path, text), "//models:on-gpu"), "Partition")
    assert isinstance(partition.discoverer, KernelActions)
    assert "gxx" in partition.discoverer.toolchains
    discovery = partition.discoverer(discovering=partition.identifier, manifest=CUDA_MANIFEST)
    made = {each.identifier.removeprefix("//models:on-gpu "): each for each in discovery.actions}
    assert list(made) == [
        "ScheduleKernel kernel_aa",
        "CompileKernel kernel_aa",
        "CompileDevice kernel_aa sm_90",
        "CompileLibrary cublas",
    ]
    scheduled, compiled = made["ScheduleKernel kernel_aa"], made["CompileLibrary cublas"]
    assert isinstance(scheduled.command, StageCall)
    assert isinstance(compiled.command, StageCall)
    assert dict(scheduled.command.plugins) == {"backend": "mlcbuild.compiler.backends.cuda.schedule_cublas:SCHEDULING"}
    assert dict(compiled.command.plugins) == {"library": "mlcbuild.compiler.backends.cuda.libraries.cublas:LIBRARY"}
    assert (compiled.toolchains, compiled.inputs) == (("gxx",), ())
    objects = [each.path for each in dict(discovery.groups)["objects"] if isinstance(each, DerivedArtifact)]
    assert objects == ["out/kernel_aa.o", "out/cublas.o"]


def test_measurements_with_a_library_are_told_apart_from_those_without(tmp_path: Path) -> None:
    platforms = []
    for number, libraries in enumerate(("", '\nlibraries = ["cublas"]')):
        (tmp_path / str(number)).mkdir()
        text = CUDA.replace('["sm_90a", "sm_80"]', f'["sm_90"]{libraries}')
        discoverer = action(analysed(model_workspace(tmp_path / str(number), text), "//models:on-gpu"), "Partition")
        assert isinstance(discoverer.discoverer, KernelActions)
        platforms.append(discoverer.discoverer.platform)
    plain, with_library = platforms
    assert plain.target == with_library.target == plain.tuned_for
    assert platform_key(with_library.tuned_for) != platform_key(plain.tuned_for)


def test_mistakes_in_platforms_are_told_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis_module, "program_path", lambda name: f"/usr/bin/{name}")  # whatever is installed here
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
[[platform]]
name = "two"
kind = "cuda"
arch = ["sm_80", "sm_90"]
kernels = "triton"
[[platform]]
name = "old"
kind = "cuda"
arch = ["sm_75"]
kernels = "triton"
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
        'a/BUILD.toml:31:11: kernels = "triton" takes one architecture, not 2: a launch is made for one in //a:two',
        "  write a platform for each architecture",
        '  or kernels = "portable"',
        'a/BUILD.toml:36:11: kernels = "triton" is for sm_80 and later, not sm_75 in //a:old',
        '  write kernels = "portable"',
    ]


def test_a_library_that_a_platform_cannot_have_is_refused_where_it_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis_module, "program_path", lambda name: f"/usr/bin/{name}")  # whatever is installed here
    text = """
[[platform]]
name = "of-cpu"
kind = "cpu"
cpu = "x86-64-v3"
libraries = ["cublas"]
[[platform]]
name = "old"
kind = "cuda"
arch = ["sm_75"]
libraries = ["cublas"]
[[platform]]
name = "arm"
kind = "cuda"
arch = ["sm_90"]
host = "aarch64-linux-gnu"
cpu = "cortex-a76"
libraries = ["cublas"]
"""
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(write(tmp_path, {"a/BUILD.toml": text}), "//a:all")
    lines = [line for line in str(raised.value).splitlines() if not line.startswith("  ")]
    assert lines == [
        "a/BUILD.toml:6:13: a platform of kind cpu has no libraries in //a:of-cpu",
        "a/BUILD.toml:11:13: libraries are for sm_80 and later, not sm_75 in //a:old",
        "a/BUILD.toml:18:13: libraries are called from x86_64 hosts, and not from aarch64-linux-gnu: g++ compiles what "
        "calls them in //a:arm",
    ]
    unknown = text.partition('[[platform]]\nname = "old"')[2].replace("cublas", "cublass", 1)
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(write(tmp_path / "b", {"a/BUILD.toml": f'[[platform]]\nname = "old"{unknown}'}), "//a:all")
    print(raised.value)
    assert "a/BUILD.toml:5:14: " in str(raised.value)
    assert 'did you mean "cublas"?' in str(raised.value)


def test_every_mistake_of_a_platform_is_told_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis_module, "program_path", lambda name: f"/usr/bin/{name}")  # whatever is installed here
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
    monkeypatch.setattr(
        analysis_module, "program_path", lambda name: "" if name == "aarch64-linux-gnu-ld" else f"/bin/{name}"
    )
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(root, "//a:all")
    assert str(raised.value).splitlines() == [
        'a/BUILD.toml:6:8: this machine has no linker for the host "aarch64-linux-gnu" in //a:arm',
        "  install aarch64-linux-gnu-ld (Debian's package binutils-aarch64-linux-gnu)",
    ]


def test_a_library_is_linked_by_the_linker_for_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis_module, "program_path", lambda name: f"/usr/bin/{name}")
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
