"""The actions of each distinct kernel, as Partition's manifest announces them.

ScheduleKernel → CompileKernel; for a GPU then CompileDevice for each architecture, and FatBinary where there are
several.

Their keys hold the kernel's content and what it is compiled for, and no target: the same kernel of two models or matrix
cells is compiled once, and an architecture that is added costs its own CompileDevice.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.manifest import read_manifest
from mlcbuild.engine.action import Action, DerivedArtifact, Discovery
from mlcbuild.rules.providers import PlatformInfo
from mlcbuild.rules.rule import stage_action

KERNEL_KINDS = {"cpu": "cpu_kernel", "cuda": "cuda_kernel"}
_PROCESSORS = {"cpu": "cpu", "cuda": "gpu"}


@dataclass(frozen=True, kw_only=True)
class KernelActions:
    """Announces the actions of every kernel in a manifest.

    The groups are `signatures` and `objects`, for a GPU also `device_code` and `launches`.
    """

    owner: str
    platform: PlatformInfo
    optimized: bool

    @property
    def toolchains(self) -> tuple[str, ...]:
        """Those that only announced actions need, so that a missing one is told before anything runs."""
        if self.platform.kind != "cuda":
            return ()
        fat = ("nvfatbin",) if len(self.platform.architectures) > 1 else ()
        return (*_device_toolchains(self.platform), *fat)

    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery:
        document = read_manifest(manifest)
        kind = KERNEL_KINDS[self.platform.kind]
        actions: list[Action] = []
        groups: dict[str, list[DerivedArtifact]] = {"objects": [], "signatures": []}
        if self.platform.kind == "cuda":
            groups |= {"device_code": [], "launches": []}
        for kernel in document["kernels"]:
            if kernel["kind"] != kind:
                raise ValueError(f"a {kernel['kind']} for a platform of kind {self.platform.kind}")
            name = kernel["name"]
            schedule = self._schedule(name, DerivedArtifact(action=discovering, path=f"out/kernels/{name}.json"))
            compile_ = self._compile(name, schedule.output(f"out/{name}.json"))
            actions += [schedule, compile_]
            groups["signatures"].append(schedule.output(f"out/{name}.signature.json"))
            groups["objects"].append(compile_.output(f"out/{name}.o"))
            if self.platform.kind == "cuda":
                groups["launches"].append(compile_.output(f"out/{name}.launch.json"))
                device = self._device(name, compile_.output(f"out/{name}.cu"))
                actions += device
                groups["device_code"].append(device[-1].output(device[-1].outputs[0]))
        return Discovery(
            actions=tuple(actions),
            groups=tuple((group, tuple(artifacts)) for group, artifacts in sorted(groups.items())),
        )

    def _schedule(self, name: str, kernel: DerivedArtifact) -> Action:
        return stage_action(
            f"{self.owner} ScheduleKernel {name}",
            "ScheduleKernel",
            f"mlcbuild.compiler.stages.schedule_{_PROCESSORS[self.platform.kind]}_kernel:run",
            owner=self.owner,
            inputs={"kernel": kernel},
            outputs={"scheduled": f"{name}.json", "signature": f"{name}.signature.json"},
            parameters={"target": self.platform.target, "optimized": self.optimized},
            toolchains=("tvm",),
        )

    def _compile(self, name: str, scheduled: DerivedArtifact) -> Action:
        outputs = {"object": f"{name}.o"}
        if self.platform.kind == "cuda":
            outputs |= {"device_source": f"{name}.cu", "launch": f"{name}.launch.json"}
        return stage_action(
            f"{self.owner} CompileKernel {name}",
            "CompileKernel",
            "mlcbuild.compiler.stages.compile_kernel:run",
            owner=self.owner,
            inputs={"scheduled": scheduled},
            outputs=outputs,
            parameters={"target": self.platform.target},
            toolchains=("tvm",),
        )

    def _device(self, name: str, source: DerivedArtifact) -> list[Action]:
        """What makes device code of the text; the last action has the kernel's."""
        platform = self.platform
        stage = "compile_device_toolkit" if platform.toolkit else "compile_device"
        actions = [
            stage_action(
                f"{self.owner} CompileDevice {name} {arch}",
                "CompileDevice",
                f"mlcbuild.compiler.stages.{stage}:run",
                owner=self.owner,
                inputs={"source": source},
                outputs={"cubin": f"{name}.{arch}.cubin"},
                parameters={"arch": arch, **({"toolkit": platform.toolkit} if platform.toolkit else {})},
                toolchains=_device_toolchains(platform),
            )
            for arch in platform.architectures
        ]
        if len(actions) > 1:
            fat = stage_action(
                f"{self.owner} FatBinary {name}",
                "FatBinary",
                "mlcbuild.compiler.stages.fat_binary:run",
                owner=self.owner,
                inputs={"cubins": [action.output(action.outputs[0]) for action in actions]},
                outputs={"fat_binary": f"{name}.fatbin"},
                parameters={},
                toolchains=("nvfatbin",),
            )
            actions.append(fat)
        return actions


def _device_toolchains(platform: PlatformInfo) -> tuple[str, ...]:
    return (f"cuda_toolkit:{platform.toolkit}",) if platform.toolkit else ("nvrtc",)
