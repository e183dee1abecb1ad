"""The actions of each distinct kernel, as Partition's manifest announces them.

ScheduleKernel, then what the platform has for a kernel: CompileKernel, and more for a device.

Their keys hold the kernel's content and what it is compiled for, and no target: the same kernel of two models or matrix
cells is compiled once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mlcbuild.compiler.kernel_description import KernelDescription
from mlcbuild.compiler.manifest import read_manifest
from mlcbuild.engine.action import Action, ActionDescription, Artifact, DerivedArtifact, Discovery, JsonValue
from mlcbuild.rules.backend import PlatformInfo
from mlcbuild.rules.rule import stage_action
from mlcbuild.tuning.choice import Choice


@dataclass(frozen=True, kw_only=True)
class KernelActions:
    """Announces the actions of every kernel in a manifest.

    The groups are `signatures` and the platform's `kernel_groups`. `part` tells them apart from those of another
    library of the same target (`RuleContext.stage`). `tuned` are the shapes that measurements have chosen, by kernel.
    """

    owner: str
    platform: PlatformInfo
    optimized: bool
    part: str = ""
    tuned: Mapping[str, Choice] = field(default_factory=dict)

    @property
    def toolchains(self) -> tuple[str, ...]:
        """Those that only announced actions need, so that a missing one is told before anything runs."""
        return self.platform.kernel_toolchains

    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery:
        actions: list[Action] = []
        groups: dict[str, list[DerivedArtifact]] = {"signatures": []}
        groups |= {group: [] for group in self.platform.kernel_groups}
        document = read_manifest(manifest)
        for name in document["kernels"]:
            schedule = self._schedule(name, DerivedArtifact(action=discovering, path=f"out/kernels/{name}.json"))
            compiled = self.platform.compile_kernel(
                name,
                schedule.output(f"out/{name}.json"),
                owner=self.owner,
                device_kernels=document.get("device_kernels", {}).get(name, ()),
            )
            described = document.get("descriptions", {}).get(name)
            actions += _described((schedule, *compiled.actions), name, described)
            groups["signatures"].append(schedule.output(f"out/{name}.signature.json"))
            for group in self.platform.kernel_groups:
                groups[group] += [one for one in compiled.groups[group] if one not in groups[group]]
        beside = self.platform.compile_libraries(self.owner)
        actions += beside.actions
        for group, made in beside.groups.items():
            groups[group] += made
        announced = Discovery(
            # Several kernels may start the same device kernel.
            actions=tuple({action.identifier: action for action in actions}.values()),
            groups=tuple((group, tuple(artifacts)) for group, artifacts in sorted(groups.items())),
        )
        return of_part(announced, self.part) if self.part else announced

    def _schedule(self, name: str, kernel: DerivedArtifact) -> Action:
        return schedule_action(
            name,
            kernel,
            owner=self.owner,
            platform=self.platform,
            optimized=self.optimized,
            tuned=self.tuned[name].parameter() if name in self.tuned and self.optimized else None,
        )


def schedule_action(
    name: str,
    kernel: DerivedArtifact,
    *,
    owner: str,
    platform: PlatformInfo,
    optimized: bool,
    tuned: Mapping[str, JsonValue] | None,
) -> Action:
    """ScheduleKernel of a kernel. `tuned` is the shape that was chosen for it, if one was; without it the action has
    no such parameter, and the key that it has without tuning."""
    return stage_action(
        f"{owner} ScheduleKernel {name}",
        "ScheduleKernel",
        "mlcbuild.compiler.stages.schedule_kernel:run",
        owner=owner,
        inputs={"kernel": kernel},
        outputs={"scheduled": f"{name}.json", "signature": f"{name}.signature.json"},
        parameters={
            "target": platform.target,
            "optimized": optimized,
            **({} if tuned is None else {"tuned": tuned}),
        },
        plugins={"backend": platform.scheduling},
        toolchains=("tvm",),
    )


def of_part(announced: Discovery, part: str) -> Discovery:
    """The same actions with a further word in their identifiers."""
    own = {action.identifier for action in announced.actions}

    def moved(artifact: Artifact) -> Artifact:
        if isinstance(artifact, DerivedArtifact) and artifact.action in own:
            return replace(artifact, action=f"{artifact.action} {part}")
        return artifact

    return Discovery(
        actions=tuple(
            replace(
                action,
                identifier=f"{action.identifier} {part}",
                inputs=tuple(replace(item, artifact=moved(item.artifact)) for item in action.inputs),
            )
            for action in announced.actions
        ),
        groups=tuple((group, tuple(map(moved, artifacts))) for group, artifacts in announced.groups),
    )


def _described(actions: Iterable[Action], kernel: str, document: Mapping[str, Any] | None) -> list[Action]:
    """The actions of a kernel with what the manifest says of it, which is nothing in a manifest of older versions."""
    if document is None:
        return list(actions)
    description = KernelDescription.read(document)
    text = description.text(kernel)
    details: tuple[tuple[str, JsonValue], ...] = (("kernel", kernel), *description.written().items())
    described = []
    for action in actions:
        # Behind a kernel's name an identifier has what tells its actions of one mnemonic apart: an architecture.
        rest = action.identifier.partition(kernel)[2]
        described.append(action.described(ActionDescription(text=text + rest, details=details)))
    return described
