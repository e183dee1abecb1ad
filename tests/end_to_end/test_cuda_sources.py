"""CUDA texts as sources of actions: what decides machine code is in the key, and nothing of where it was made is in it.

A workspace with a rule of its own that calls the stage CompileDevice: NVRTC is real, and no model is needed.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.compiler.backends.cuda import wheels
from mlcbuild.compiler.backends.cuda.architectures import ARCHITECTURES
from mlcbuild.engine.action import Action, StageCall
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.keys import compute_key
from mlcbuild.rules.backends.cuda import CudaPlatform
from mlcbuild.rules.kernels import KernelActions
from mlcbuild.toolchains.entries.nvrtc import TOOLCHAIN as NVRTC
from tests.end_to_end.world import World

RULE = '''\
"""`device`: a CUDA text and its machine code."""

from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    action = context.stage(
        "CompileDevice",
        "mlcbuild.compiler.backends.cuda.stages.compile_device:run",
        inputs={"source": context.files(context.target.label_of("text"))},
        outputs={"cubin": "x.cubin"},
        parameters={"arch": context.target.string("arch")},
        toolchains=["nvrtc"],
    )
    return (FilesInfo(files=(("x.cubin", action.output("out/x.cubin")),)),)


DEVICE = Rule(
    schema=RuleSchema(
        name="device",
        doc="Compiles.",
        attributes=(
            Attribute(name="text", kind=AttributeKind.LABEL, allow_files=True, mandatory=True, doc="A file."),
            Attribute(name="arch", kind=AttributeKind.STRING, mandatory=True, doc="A GPU architecture."),
        ),
        provides=("files",),
    ),
    implementation=implement,
)
'''
TEXT = """\
#include <cuda_fp16.h>
namespace { __device__ float table[4] = {1, 2, 3, 4}; }
static __device__ int counter;
template <int I> static __device__ __noinline__ float scaled(float x) { return x * table[I] + counter; }
extern "C" __global__ void scale(float* x) {
#if __CUDA_ARCH__ < 800
  x[0] = 1.0f;
#endif
#ifndef __CUDA_ARCH__
  x[0] = 1.0f;
#endif
  atomicAdd(&counter, 1);
  x[threadIdx.x] = scaled<2>(x[threadIdx.x]);
}
"""
# Some of each kind: plain, with instructions of its own, of a family, and those that others took for one another.
BUILT = ("sm_80", "sm_90", "sm_90a", "sm_120", "sm_121", "sm_121a")


def workspace(folder: Path, *architectures: str, text: str = TEXT) -> World:
    world = World(folder)
    world.write("device/BUILD.toml", "")
    world.write("device/rule.py", RULE)
    world.write("x.cu", text)
    world.commands(
        *(f'[[device]]\nname = "{arch}"\ntext = "x.cu"\narch = "{arch}"\n' for arch in architectures),
        head='[workspace]\nname = "example"\nrules = ["//device:rule.py"]\n',
    )
    return world


def cubin(world: World, arch: str) -> bytes:
    return world.output(f"{arch}/x.cubin").read_bytes()


@pytest.mark.parametrize("condition", ["#if __CUDA_ARCH__ < 800", "#ifndef __CUDA_ARCH__"])
def test_an_edit_that_the_preprocessor_drops_is_an_edit(tmp_path: Path, condition: str) -> None:
    world = workspace(tmp_path, "sm_90")
    assert world.build().actions == {"executed_local": 1}
    before = cubin(world, "sm_90")
    edited = TEXT.replace(f"{condition}\n  x[0] = 1.0f;", f"{condition}\n  x[0] = 2.0f;")
    assert edited != TEXT
    world.write("x.cu", edited)
    assert world.build().actions == {"executed_local": 1}, "the text is the key's, as it stands"
    assert cubin(world, "sm_90") == before
    world.write("x.cu", TEXT)
    assert world.build().actions == {"disk_hits": 1}


def test_each_architecture_has_code_and_a_key_of_its_own(tmp_path: Path) -> None:
    world = workspace(tmp_path, *BUILT)
    assert world.build().actions == {"executed_local": len(BUILT)}, "none is taken for another"
    assert world.verify() == len(BUILT)
    for arch in BUILT:
        (flags,) = struct.unpack_from("<I", cubin(world, arch), 48)
        assert flags >> 8 & 0xFF == int(re.sub(r"\D", "", arch)), f"the ELF header of {arch}"
    # Of one number but for its suffix: NVRTC tells them apart, and so must we.
    assert cubin(world, "sm_90") != cubin(world, "sm_90a")
    world.mlcbuild("clean")
    assert world.build().actions == {"disk_hits": len(BUILT)}


def test_nothing_of_a_process_or_place_is_in_machine_code(tmp_path: Path) -> None:
    """Other compilers name temporary files, processes and random numbers in symbols of what is local to a file."""
    first = workspace(tmp_path / "one", *BUILT)
    second = workspace(tmp_path / "another place" / "deeper", *BUILT)
    for world in (first, second):
        assert world.build().actions == {"executed_local": len(BUILT)}
    for arch in BUILT:
        data = cubin(first, arch)
        assert data == cubin(second, arch)
        assert b"_INTERNAL_00000000_9_kernel_cu_" in data, "where others have what differs"
        for word in (b"tmpxft", b"/tmp", str(tmp_path).encode(), b"site-packages"):
            assert word not in data, word


def test_all_headers_that_can_be_reached_count() -> None:
    """NVRTC gets a folder of its own: others install into the one of the wheels as well."""
    counted = {
        Path(str(distribution.locate_file(path))).resolve()
        for name in NVRTC.distributions
        for distribution in [importlib.metadata.distribution(name)]
        for path in distribution.files or ()
    }
    assert tuple(name.replace("-", "_") for name in NVRTC.distributions) == wheels.DISTRIBUTIONS
    reached = {path.resolve() for path in wheels.counted_headers().rglob("*") if not path.is_dir()}
    assert len(reached) > 100
    assert all(file.is_relative_to(Path(sysconfig.get_paths()["purelib"]).resolve()) for file in reached)
    assert reached - counted == set()
    assert {"cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "mma.h"} <= {path.name for path in reached}
    assert wheels.find("lib/libnvrtc.so.13").resolve() in counted
    assert wheels.find("lib/libnvrtc-builtins.so.13.0").resolve() in counted


_COMPILE = """
import sys
from pathlib import Path
from mlcbuild.compiler.backends.cuda import nvrtc
text = "".join(f"#include <{name}>\\n" for name in sys.argv[2:])
text += 'extern "C" __global__ void f(half* x) { x[0] = __float2half_rn(2.0f); }'
Path(sys.argv[1]).write_bytes(nvrtc.compile_text(text, "sm_90"))
"""


@pytest.mark.parametrize("header", ["nv/target", "cuda/std/type_traits", "crt/added.h"])
def test_headers_of_other_distributions_are_out_of_reach(header: str, tmp_path: Path) -> None:
    """As nvidia-cuda-cccl installs them, into the same folder."""
    real = wheels.find("include")
    site = tmp_path / "site"
    folder = site / "nvidia/cu13"
    shutil.copytree(real, folder / "include", copy_function=os.symlink)
    (folder / "lib").symlink_to(real.parent / "lib")
    for name in wheels.DISTRIBUTIONS:
        (information,) = real.parents[2].glob(f"{name}-*.dist-info")
        (site / information.name).symlink_to(information)
    added = folder / "include" / header
    added.parent.mkdir(parents=True, exist_ok=True)
    added.unlink(missing_ok=True)
    added.write_text('#error "another distribution\'s header was read"\n')

    def compiled(*headers: str, **variables: str) -> tuple[str, bytes]:
        environment = {**os.environ, **variables}
        arguments = [sys.executable, "-c", _COMPILE, str(tmp_path / "cubin"), "cuda_fp16.h", "cuda_fp8.h", *headers]
        (tmp_path / "cubin").write_bytes(b"")
        done = subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=120, check=False)
        return done.stderr, (tmp_path / "cubin").read_bytes()

    path = os.pathsep.join((str(site), *sys.path))
    log, cubin = compiled(PYTHONPATH=path)
    assert cubin == compiled()[1] != b"", log
    assert "another distribution" not in compiled(header, PYTHONPATH=path)[0]


_MANIFEST = b'{"version": 1, "kernels": ["k"]}'
_TRITON_MANIFEST = (
    b'{"version": 1, "kernels": ["k"], "device_kernels": {"k": [{"name": "t", "function": "kernels.own:t", '
    b'"constants": [["BLOCK", 64]], "warps": 4}]}}'
)


def _actions(*architectures: str, toolkit: str = "", manifest: bytes = _MANIFEST) -> tuple[Action, ...]:
    """Those of one kernel, as a library for these architectures has them."""
    target = {"kind": "cuda", "arch": architectures[0]}
    platform = CudaPlatform(kind="cuda", target=target, architectures=architectures, toolkit=toolkit)
    return KernelActions(owner="//x:y", platform=platform, optimized=True)(discovering="p", manifest=manifest).actions


def _keys(
    *architectures: str, nvrtc: str = "1", toolkit: str = "", triton: str = "0", manifest: bytes = _MANIFEST
) -> dict[str, str]:
    """The keys of these actions, all of equal inputs, by their identifiers."""
    function = DigestFunction.BLAKE3
    found = {}
    for action in _actions(*architectures, toolkit=toolkit, manifest=manifest):
        inputs = tuple(FileEntry(path=each.path, digest=function.of_bytes(b"input")) for each in action.inputs)
        contents = {"nvrtc": nvrtc, f"cuda_toolkit:{toolkit}": nvrtc, "triton": triton}
        toolchains = {name: contents.get(name, "0") for name in action.toolchains}
        key = compute_key(action, inputs, toolchains=toolchains, implementation="2" * 64, function=function)
        found[action.identifier.removeprefix("//x:y ")] = key.digest.hash
    return found


@pytest.mark.parametrize("toolkit", ["", "/opt/cuda"])
def test_code_is_made_for_the_architecture_that_was_asked_for_to_the_letter(toolkit: str) -> None:
    calls = [each.command for each in _actions(*ARCHITECTURES, toolkit=toolkit) if each.mnemonic == "CompileDevice"]
    assert [dict(call.parameters)["arch"] for call in calls if isinstance(call, StageCall)] == list(ARCHITECTURES)


def test_no_two_architectures_share_a_key_at_any_stage_of_a_kernel() -> None:
    keys = [_keys(arch) for arch in ARCHITECTURES]
    for stage in ("ScheduleKernel k", "CompileKernel k", "CompileDevice k"):
        of_stage = {next(key for name, key in each.items() if name.startswith(stage)) for each in keys}
        assert len(of_stage) == len(ARCHITECTURES) > 20, stage


def test_the_set_of_architectures_and_the_compilers_content_count() -> None:
    one, more = _keys("sm_80"), _keys("sm_80", "sm_90a")
    assert one["CompileDevice k sm_80"] == more["CompileDevice k sm_80"], "one more costs its own action"
    assert "FatBinary k" in more.keys() - one.keys()
    assert _keys("sm_80", nvrtc="2")["CompileDevice k sm_80"] != one["CompileDevice k sm_80"]
    assert _keys("sm_80", toolkit="/opt/cuda")["CompileDevice k sm_80"] != one["CompileDevice k sm_80"]


def test_what_compiles_a_kernel_in_triton_is_in_its_key_and_in_no_other() -> None:
    def keys(arch: str = "sm_80", *, old: bytes = b"", new: bytes = b"", triton: str = "0") -> dict[str, str]:
        return _keys(arch, triton=triton, manifest=_TRITON_MANIFEST.replace(old, new) if old else _TRITON_MANIFEST)

    before = keys()
    assert set(before) == {"ScheduleKernel k", "CompileKernel k", "CompileTriton t sm_80"}

    def others(after: dict[str, str]) -> set[str]:
        return {name for name in before if after.get(name) != before[name]}

    assert others(keys()) == set()
    assert others(keys(triton="1")) == {"CompileTriton t sm_80"}
    assert others(keys(old=b"64", new=b"128")) == {"CompileTriton t sm_80"}
    assert others(keys(old=b": 4", new=b": 8")) == {"CompileTriton t sm_80"}
    assert len({keys(arch)[f"CompileTriton t {arch}"] for arch in ARCHITECTURES}) == len(ARCHITECTURES)
