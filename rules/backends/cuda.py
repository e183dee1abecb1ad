"""`cuda`: NVIDIA's GPUs.

A kernel goes on after CompileKernel: CompileDevice for each architecture, and FatBinary where there are several. Their
keys hold the kernel's text and the architecture, and no target, so that an architecture that is added costs its own
CompileDevice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlcbuild.compiler.backends.cuda.architectures import (
    ARCHITECTURES,
    has_mma_m16n8k16,
    in_order,
    number,
    problem,
    scheduled_for,
)
from mlcbuild.engine.action import Action, DerivedArtifact, ExecutionRequirements, JsonValue
from mlcbuild.rules.backend import Backend, CompiledKernel, PlatformInfo
from mlcbuild.rules.host import CPU_OF_A_DEVICE_HOST, HOST_ATTRIBUTES, host_target
from mlcbuild.rules.rule import RuleContext, stage_action
from mlcbuild.workspace.schema import Attribute, AttributeKind

# The GPUs that most people have had since 2020: A100, GeForce 30 and 40, L4, L40S, H100, H200.
_COMMON = ("sm_80", "sm_90")
_FIRST_OF_TRITON = 80
_LIBRARIES = ("cublas",)  # a module each in `compiler/backends/cuda/libraries/`
_LIBRARY_HOST = "x86_64"
_ALONE = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_103", "sm_120", "sm_121")

# What every architecture since sm_75 has: a block's threads, its shared memory in bytes without asking for more, and
# the threads that run in step. They are named, because TVM would ask this machine's GPU for what is left out.
_DEVICE_LIMITS: dict[str, JsonValue] = {
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}


@dataclass(frozen=True, kw_only=True)
class CudaPlatform(PlatformInfo):
    """`architectures`, the lowest first, are those that there is machine code for; kernels are scheduled for the first,
    and without its own instructions where there are others.

    `toolkit` is the path of the CUDA toolkit that makes it, "" for the compiler that comes with `mlcbuild[cuda]`.
    """

    kernel_groups: ClassVar[tuple[str, ...]] = ("device_code", "launches", "objects")
    has_cuda_graphs: ClassVar[bool] = True

    architectures: tuple[str, ...]
    toolkit: str = ""
    kernels: str = "portable"
    libraries: tuple[str, ...] = ()

    def passes(self, phase: str) -> Mapping[str, str]:
        """Kernels that are written in Triton are put in place in Phase0 and Phase1, for platforms that take them."""
        if phase in ("phase0", "phase1") and self.kernels == "triton":
            return {"backend": self.plugin(f"{phase}_triton:PASSES")}
        return super().passes(phase)

    @property
    def scheduling(self) -> str:
        """With `libraries` their rules come before the kind's own."""
        return self.plugin("schedule_cublas:SCHEDULING") if "cublas" in self.libraries else super().scheduling

    @property
    def tuned_for(self) -> Mapping[str, JsonValue]:
        """Another rule schedules the same kernels where a library may have them, so records are told apart."""
        return {**self.target, "libs": list(self.libraries)} if self.libraries else self.target

    def lacks_dtype(self, dtype: str) -> str:
        """bfloat16 has instructions since compute capability 8.0."""
        lowest = self.architectures[0] if self.architectures else ""
        return f"{lowest} has no bfloat16, sm_80 is the first" if dtype == "bfloat16" and number(lowest) < 80 else ""

    @property
    def triton_architecture(self) -> str:
        return self.architectures[0] if self.kernels == "triton" and self.architectures else ""

    @property
    def kernel_toolchains(self) -> tuple[str, ...]:
        fat = ("nvfatbin",) if len(self.architectures) > 1 else ()
        triton = ("triton",) if self.kernels == "triton" else ()
        return (*self._device_toolchains, *fat, *triton, *(("gxx",) if self.libraries else ()))

    @property
    def run_requirements(self) -> ExecutionRequirements:
        """A GPU of the library's architecture, by the name that machines say of theirs, which have no letter behind the
        number; where it has several, whoever has a GPU may be asked."""
        labels = (("arch", f"sm_{number(self.architectures[0])}"),) if len(self.architectures) == 1 else ()
        return ExecutionRequirements(gpus=1, labels=labels)

    @property
    def unlike_devices(self) -> str:
        """Each architecture has machine code of its own."""
        return f"it is for GPUs of {' and '.join(self.architectures)}" if len(self.architectures) > 1 else ""

    def compile_libraries(self, owner: str) -> CompiledKernel:
        """CompileLibrary of each of `libraries`: what calls it."""
        compiled = tuple(
            stage_action(
                f"{owner} CompileLibrary {library}",
                "CompileLibrary",
                self.plugin("stages.compile_library:run"),
                owner=owner,
                inputs={},
                outputs={"object": f"{library}.o"},
                parameters={},
                plugins={"library": self.plugin(f"libraries.{library}:LIBRARY")},
                toolchains=("gxx",),
            )
            for library in self.libraries
        )
        made = [action.output(action.outputs[0]) for action in compiled]
        return CompiledKernel(actions=compiled, groups={"objects": made})

    def compile_kernel(
        self,
        kernel: str,
        scheduled: DerivedArtifact,
        *,
        owner: str,
        device_kernels: Sequence[Mapping[str, JsonValue]] = (),
    ) -> CompiledKernel:
        if device_kernels:
            return self._compile_host(kernel, scheduled, owner, device_kernels)
        compiled = stage_action(
            f"{owner} CompileKernel {kernel}",
            "CompileKernel",
            self.plugin("stages.compile_kernel:run"),
            owner=owner,
            inputs={"scheduled": scheduled},
            outputs={
                "object": f"{kernel}.o",
                "device_source": f"{kernel}.cu",
                "launch": f"{kernel}.launch.json",
            },
            parameters={"target": self.target},
            toolchains=("tvm",),
        )
        device = self._device_actions(kernel, compiled.output(f"out/{kernel}.cu"), owner)
        return CompiledKernel(
            actions=(compiled, *device),
            groups={
                "objects": [compiled.output(f"out/{kernel}.o")],
                "launches": [compiled.output(f"out/{kernel}.launch.json")],
                "device_code": [device[-1].output(device[-1].outputs[0])],
            },
        )

    def _compile_host(
        self, kernel: str, scheduled: DerivedArtifact, owner: str, started: Sequence[Mapping[str, JsonValue]]
    ) -> CompiledKernel:
        """The actions of a kernel that runs on the host, and starts others."""
        (arch,) = self.architectures
        triton = {str(each["name"]): self._compile_triton(each, arch, owner) for each in started}
        launches = [action.output(f"out/{name}.launch.json") for name, action in triton.items()]
        compiled = stage_action(
            f"{owner} CompileKernel {kernel}",
            "CompileKernel",
            self.plugin("stages.compile_host:run"),
            owner=owner,
            inputs={"scheduled": scheduled, "launches": launches},
            outputs={"object": f"{kernel}.o"},
            parameters={"target": self.target},
            toolchains=("tvm",),
        )
        return CompiledKernel(
            actions=(*triton.values(), compiled),
            groups={
                "objects": [compiled.output(f"out/{kernel}.o")],
                "launches": launches,
                "device_code": [action.output(f"out/{name}.{arch}.cubin") for name, action in triton.items()],
            },
        )

    def _compile_triton(self, kernel: Mapping[str, JsonValue], arch: str, owner: str) -> Action:
        """What compiles a kernel that `backends.cuda.triton_launch.TritonKernel` describes."""
        name = str(kernel["name"])
        return stage_action(
            f"{owner} CompileTriton {name} {arch}",
            "CompileTriton",
            self.plugin("stages.compile_triton:run"),
            owner=owner,
            inputs={},
            outputs={"cubin": f"{name}.{arch}.cubin", "launch": f"{name}.launch.json"},
            parameters={**{key: value for key, value in kernel.items() if key != "function"}, "arch": arch},
            plugins={"kernel": str(kernel["function"])},
            toolchains=("triton",),
        )

    def _device_actions(self, kernel: str, source: DerivedArtifact, owner: str) -> list[Action]:
        """What makes device code of the text; the last action has the kernel's."""
        stage = "compile_device_toolkit" if self.toolkit else "compile_device"
        actions = [
            stage_action(
                f"{owner} CompileDevice {kernel} {arch}",
                "CompileDevice",
                self.plugin(f"stages.{stage}:run"),
                owner=owner,
                inputs={"source": source},
                outputs={"cubin": f"{kernel}.{arch}.cubin"},
                parameters={"arch": arch, **({"toolkit": self.toolkit} if self.toolkit else {})},
                toolchains=self._device_toolchains,
            )
            for arch in self.architectures
        ]
        if len(actions) > 1:
            fat = stage_action(
                f"{owner} FatBinary {kernel}",
                "FatBinary",
                self.plugin("stages.fat_binary:run"),
                owner=owner,
                inputs={"cubins": [action.output(action.outputs[0]) for action in actions]},
                outputs={"fat_binary": f"{kernel}.fatbin"},
                parameters={},
                toolchains=("nvfatbin",),
            )
            actions.append(fat)
        return actions

    @property
    def _device_toolchains(self) -> tuple[str, ...]:
        return (f"cuda_toolkit:{self.toolkit}",) if self.toolkit else ("nvrtc",)


def platform(context: RuleContext) -> CudaPlatform:
    """The target has `kind` cuda, `arch` (`scheduled_for`), the device's limits, and the host's target as `host`."""
    names = context.target.strings("arch")
    if not names:
        raise context.error(
            "no arch", attribute="kind", advice=('name the GPU architectures, for example arch = ["sm_80", "sm_90"]',)
        )
    for name in names:
        if (wrong := problem(name)) is not None:
            context.report(wrong[0], attribute="arch", advice=wrong[1])
    toolkit = context.target.optional_string("toolkit") or ""
    if toolkit and not toolkit.startswith("/"):
        context.report(
            f'toolkit "{toolkit}" is not absolute', attribute="toolkit", advice=('for example "/usr/local/cuda-13.0"',)
        )
    ordered = in_order(name for name in names if problem(name) is None)
    host = host_target(context, default_cpu=CPU_OF_A_DEVICE_HOST)
    target: dict[str, JsonValue] = {
        "kind": "cuda",
        "arch": scheduled_for(ordered) if ordered else "",
        **_DEVICE_LIMITS,
        "host": host,
    }
    kernels = context.target.string("kernels")
    if kernels == "triton" and len(ordered) > 1:
        context.report(
            f'kernels = "triton" takes one architecture, not {len(ordered)}: a launch is made for one',
            attribute="kernels",
            advice=("write a platform for each architecture", 'or kernels = "portable"'),
        )
    if kernels == "triton" and ordered and number(ordered[0]) < _FIRST_OF_TRITON:
        context.report(
            f'kernels = "triton" is for sm_80 and later, not {ordered[0]}',
            attribute="kernels",
            advice=('write kernels = "portable"',),
        )
    return CudaPlatform(
        kind="cuda",
        target=target,
        architectures=ordered,
        toolkit=toolkit.rstrip("/"),
        kernels=kernels,
        libraries=_libraries(context, ordered, str(host["mtriple"])),
    )


def _libraries(context: RuleContext, architectures: Sequence[str], triple: str) -> tuple[str, ...]:
    """The libraries that a platform declares, sorted."""
    named = context.target.strings("libraries")
    if named and architectures and not has_mma_m16n8k16(architectures[0]):
        context.report(
            f"libraries are for sm_80 and later, not {architectures[0]}",
            attribute="libraries",
            advice=("leave out libraries",),
        )
    if named and not triple.startswith(f"{_LIBRARY_HOST}-"):
        context.report(
            f"libraries are called from {_LIBRARY_HOST} hosts, and not from {triple}: g++ compiles what calls them",
            attribute="libraries",
            advice=("leave out libraries",),
        )
    return tuple(sorted(set(named)))


BACKEND = Backend(
    kind="cuda",
    doc="NVIDIA's GPUs. It needs the extra `mlcbuild[cuda]` where it is built, and no GPU, driver or toolkit.",
    attributes=(
        *HOST_ATTRIBUTES,
        Attribute(
            name="arch",
            kind=AttributeKind.STRING_LIST,
            doc="The GPU architectures that one library has machine code for: sm_80, sm_90, sm_90a … Kernels are "
            "scheduled once, for the lowest.",
        ),
        Attribute(
            name="toolkit",
            kind=AttributeKind.STRING,
            doc="The absolute path of a CUDA toolkit whose nvcc compiles device code. Left out: NVRTC, which "
            "`mlcbuild[cuda]` brings, even where a toolkit is installed.",
        ),
        Attribute(
            name="kernels",
            kind=AttributeKind.CHOICE,
            allowed=("portable", "triton"),
            default="portable",
            doc="`triton`: attention of prompts, and products of 8-bit numbers, are compiled by Triton, which "
            "`mlcbuild[triton]` brings, for one architecture from sm_80 on. `portable`: no kernel is.",
        ),
        Attribute(
            name="libraries",
            kind=AttributeKind.STRING_LIST,
            allowed=_LIBRARIES,
            doc="NVIDIA's libraries that kernels may call where the model runs, which must have them: `cublas` has "
            "products of halves with many vectors, by libcublasLt of CUDA 12 or 13. Left out: none.",
        ),
    ),
    platform=platform,
    kv_state_kinds=("kv_cache", "rnn_state", "hybrid", "none"),
    sliding_windows=True,
    model_dtypes={"float32": "", "float16": "", "bfloat16": "from sm_80 on"},
    triton_architectures=tuple(name for name in in_order(ARCHITECTURES) if number(name) >= _FIRST_OF_TRITON),
    platforms={"cuda": {"arch": _COMMON}, **{name: {"arch": (name,)} for name in _ALONE}},
)
