"""What rules know of a kind of target: the `Backend` that `rules/backends/<kind>.py` exports as BACKEND.

A backend has two halves. The one for rules is this: what a `platform` of the kind says, and which actions its libraries
take. The other one, `mlcbuild/compiler/backends/<kind>/`, is code that these actions run; rules name it in plug-ins.
Kinds are found by listing `rules/backends/`: a file and a folder more are one kind more, named nowhere else.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

from mlcbuild.engine.action import Action, DerivedArtifact, ExecutionRequirements, JsonValue
from mlcbuild.plugins import missing_modules, plugins_in
from mlcbuild.rules.providers import Provider
from mlcbuild.rules.rule import RuleContext, stage_action
from mlcbuild.system_programs import linker_name
from mlcbuild.workspace.schema import Attribute

# The modules that the compiler's half of every backend has.
_MANDATORY = ("__init__", "schedule", "link")


@dataclass(frozen=True, kw_only=True)
class CompiledKernel:
    """The actions that a kernel takes after ScheduleKernel, and what they make for each of `kernel_groups`; those of
    what is linked beside kernels have some of the groups."""

    actions: tuple[Action, ...]
    groups: Mapping[str, Sequence[DerivedArtifact]]


@dataclass(frozen=True, kw_only=True)
class PlatformInfo(Provider):
    """What a library runs on; `target` is TVM's target as a JSON object.

    This class is of kinds whose code runs on the host. A kind that needs more has a subclass in its own file, with the
    values that it needs as further fields.
    """

    name: ClassVar[str] = "platform"
    noun: ClassVar[str] = "platform"
    # What kernels give to Link: groups of files, each an argument of Link.
    kernel_groups: ClassVar[tuple[str, ...]] = ("objects",)
    has_cuda_graphs: ClassVar[bool] = False  # decoding can be recorded once and replayed
    library_suffix: ClassVar[str] = ".so"

    kind: str
    target: Mapping[str, JsonValue]

    def plugin(self, name: str) -> str:
        """An object of the compiler's half: `schedule:SCHEDULING` is that of `compiler/backends/<kind>/schedule.py`."""
        return f"mlcbuild.compiler.backends.{self.kind}.{name}"

    def passes(self, phase: str) -> Mapping[str, str]:
        """The plug-in of a phase's stage (`phase0`) that is the kind's own passes; none where it has none there."""
        if phase not in plugins_in(f"compiler/backends/{self.kind}"):
            return {}
        return {"backend": self.plugin(f"{phase}:PASSES")}

    @property
    def scheduling(self) -> str:
        """The plug-in `backend` of ScheduleKernel: the rules that schedule kernels."""
        return self.plugin("schedule:SCHEDULING")

    @property
    def tuned_for(self) -> Mapping[str, JsonValue]:
        """What records of measurements are of (`tuning.record.platform_key`)."""
        return self.target

    def lacks_dtype(self, dtype: str) -> str:
        """Why models cannot compute in one of the kind's types on this platform; "" where they can."""
        del dtype
        return ""

    @property
    def triton_architecture(self) -> str:
        """The architecture that kernels in Triton are compiled for; "" where libraries have none."""
        return ""

    @property
    def link_toolchains(self) -> tuple[str, ...]:
        """What Link takes: the linker for the host's machine."""
        host = self.target.get("host", self.target)
        assert isinstance(host, Mapping)
        machine = str(host["mtriple"]).partition("-")[0]
        return ("ld",) if linker_name(machine) == "ld" else (f"cross_ld:{machine}",)

    @property
    def kernel_toolchains(self) -> tuple[str, ...]:
        """Those that only the actions of kernels need, so that a missing one is told before anything runs."""
        return ()

    @property
    def run_requirements(self) -> ExecutionRequirements:
        """What it takes to run a library."""
        return ExecutionRequirements()

    @property
    def unlike_devices(self) -> str:
        """Why the devices that a library runs on may compute other roundings than each other; "" where they do not."""
        return ""

    def compile_libraries(self, owner: str) -> CompiledKernel:
        """What a library needs beside its kernels, whatever these are: nothing but where a kind says otherwise."""
        del owner
        return CompiledKernel(actions=(), groups={})

    def compile_kernel(
        self,
        kernel: str,
        scheduled: DerivedArtifact,
        *,
        owner: str,
        device_kernels: Sequence[Mapping[str, JsonValue]] = (),
    ) -> CompiledKernel:
        """What happens to the kernel of that name once it is scheduled. Its actions are `owner`'s, a target's.

        It starts `device_kernels`, which the kind's own passes put there."""
        del device_kernels
        compiled = stage_action(
            f"{owner} CompileKernel {kernel}",
            "CompileKernel",
            "mlcbuild.compiler.stages.compile_kernel:run",
            owner=owner,
            inputs={"scheduled": scheduled},
            outputs={"object": f"{kernel}.o"},
            parameters={"target": self.target},
            toolchains=("tvm",),
        )
        return CompiledKernel(actions=(compiled,), groups={"objects": [compiled.output(f"out/{kernel}.o")]})


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A kind of target, as `platform` targets name it.

    `doc` is a sentence for the reference of rules. `attributes` are those of `platform` that the kind has; kinds may
    share one, which then has the same type for all. `platform` checks their values and makes the provider; it raises
    WorkspaceError for a mistake (`RuleContext.error`).

    `model_dtypes` are the types that models can compute in, each with the condition on a platform, "" for none (see
    `PlatformInfo.lacks_dtype`). `kv_state_kinds` are what its kernels can keep for a sequence, by MLC-LLM's words.
    `sliding_windows` says whether its Phase0 has kernels for a window: TVM's own compute something else.

    `platforms` are those that every workspace has, by name: the attributes of each, without `kind`
    (`repositories.PLATFORMS`). The one of the kind's own name is the platform that `mlcbuild init` proposes, with the
    first of `proposed_quantizations` that a model can have. `triton_architectures` are those that kernels in Triton can
    be compiled for.
    """

    kind: str
    doc: str
    attributes: tuple[Attribute, ...]
    platform: Callable[[RuleContext], PlatformInfo]
    model_dtypes: Mapping[str, str] = field(default_factory=lambda: {"float32": "", "float16": ""})
    kv_state_kinds: tuple[str, ...] = ("kv_cache",)
    sliding_windows: bool = False
    platforms: Mapping[str, Mapping[str, str | Sequence[str]]] = field(default_factory=dict)
    triton_architectures: tuple[str, ...] = ()
    proposed_quantizations: tuple[str, ...] = ("q4f16_1", "q0f16")


@cache
def backends() -> Mapping[str, Backend]:
    """All backends by kind, sorted.

    Raises ValueError for a file that exports none, or one of another kind, and for one without its other half.
    """
    found = {}
    for name in plugins_in("rules/backends"):
        backend = getattr(importlib.import_module(f"mlcbuild.rules.backends.{name}"), "BACKEND", None)
        if not isinstance(backend, Backend) or backend.kind != name:
            raise ValueError(f"rules/backends/{name}.py has no BACKEND of kind {name!r}")
        half = f"compiler/backends/{name}"
        if missing := missing_modules(half, _MANDATORY):
            raise ValueError(f"the backend {name} has no {' and no '.join(missing)} in mlcbuild/{half}")
        found[name] = backend
    return found
