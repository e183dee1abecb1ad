"""The actions of each distinct kernel: ScheduleKernel → CompileKernel, as Partition's manifest announces them.

Their keys hold the kernel's content and what it is compiled for, and no target: the same kernel of two models or matrix
cells is compiled once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from mlcbuild.engine.action import DerivedArtifact, Discovery, JsonValue
from mlcbuild.rules.rule import stage_action

_MANIFEST_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class KernelActions:
    """Announces the actions of every kernel in a manifest, and the groups `signatures` and `objects`."""

    owner: str
    target: Mapping[str, JsonValue]
    opt: str

    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery:
        document = json.loads(manifest)
        if document.get("version") != _MANIFEST_VERSION:
            raise ValueError(f"a manifest of version {document.get('version')!r}, not {_MANIFEST_VERSION}")
        actions, signatures, objects = [], [], []
        for kernel in document["kernels"]:
            name = kernel["name"]
            schedule = stage_action(
                f"{self.owner} ScheduleKernel {name}",
                "ScheduleKernel",
                "mlcbuild.compiler.stages.schedule_kernel:run",
                owner=self.owner,
                inputs={"kernel": DerivedArtifact(action=discovering, path=f"out/kernels/{name}.json")},
                outputs={"scheduled": f"{name}.json", "signature": f"{name}.signature.json"},
                parameters={"target": self.target, "opt": self.opt},
                toolchains=("tvm",),
            )
            compile_ = stage_action(
                f"{self.owner} CompileKernel {name}",
                "CompileKernel",
                "mlcbuild.compiler.stages.compile_kernel:run",
                owner=self.owner,
                inputs={"scheduled": schedule.output(f"out/{name}.json")},
                outputs={"object": f"{name}.o"},
                parameters={"target": self.target},
                toolchains=("tvm",),
            )
            actions += [schedule, compile_]
            signatures.append(schedule.output(f"out/{name}.signature.json"))
            objects.append(compile_.output(f"out/{name}.o"))
        return Discovery(
            actions=tuple(actions), groups=(("objects", tuple(objects)), ("signatures", tuple(signatures)))
        )
