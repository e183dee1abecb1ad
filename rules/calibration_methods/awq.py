"""AWQ: PlanSearch → SearchScales (one a group of matrices, as its manifest announces) → MergeScales, then ApplyScales
for each imported shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcbuild.compiler.manifest import read_manifest
from mlcbuild.engine.action import Action, DerivedArtifact, DiscoveredArtifacts, Discovery
from mlcbuild.rules.calibration import CalibrationInputs, CalibrationMethod
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import RuleContext, stage_action

if TYPE_CHECKING:
    from mlcbuild.compiler.quantization.scheme import QuantizationScheme

KINDS = ("group-quant", "awq", "ft-quant", "float4-quant")
"""Kinds of schemes that round weights alone."""

_FOUND = "scales"


@dataclass(frozen=True, kw_only=True)
class SearchGroups:
    """Announces a SearchScales for each group of matrices, with its own statistics and shards alone: what lies in
    others may change without it. The group _FOUND has the file of each."""

    owner: str
    inputs: CalibrationInputs

    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery:
        actions, found = [], []
        stage = self.inputs.precision.stage("mlcbuild.compiler.stages.search_scales:run", "encoder")
        for number, group in enumerate(read_manifest(manifest)["groups"]):
            index = DerivedArtifact(action=discovering, path=f"out/groups/{group['index']}")
            statistics = [(str(file), self.inputs.statistic(file)) for file in group["statistics"]]
            shards = [self.inputs.shards.shard(number=each["number"], file=each["file"]) for each in group["shards"]]
            file = f"scales_{number:05d}.safetensors"
            search = stage_action(
                f"{self.owner} SearchScales {number}",
                "SearchScales",
                stage.function,
                owner=self.owner,
                inputs={
                    "shards": shards,
                    "parameters": self.inputs.parameters,
                    "statistics": FilesInfo(files=(("statistics.json", index), *statistics)),
                    **stage.inputs,
                },
                outputs={"scales": file},
                parameters={},
                plugins=stage.plugins,
            )
            actions.append(search)
            found.append(search.output(f"out/{file}"))
        return Discovery(actions=tuple(actions), groups=((_FOUND, tuple(found)),))


@dataclass(frozen=True, kw_only=True)
class ApplyScales:
    """Announces ApplyScales of a shard. The action's output has the number in its name, as shards have."""

    parameters: DerivedArtifact
    scales: DerivedArtifact

    def __call__(self, *, owner: str, index: int, shard: DerivedArtifact) -> tuple[Action, DerivedArtifact]:
        file = f"calibrated_{index:05d}.safetensors"
        action = stage_action(
            f"{owner} ApplyScales {index}",
            "ApplyScales",
            "mlcbuild.compiler.stages.apply_scales:run",
            owner=owner,
            inputs={"shard": shard, "parameters": self.parameters, "scales": self.scales},
            outputs={"calibrated": file},
            parameters={},
        )
        return action, action.output(f"out/{file}")


def _refusal(scheme: QuantizationScheme) -> str:
    if scheme.kind in KINDS:
        return ""
    return "its search is for weights of few bits that meet activations as they are"


def _declare(context: RuleContext, inputs: CalibrationInputs) -> ApplyScales:
    plan = context.stage(
        "PlanSearch",
        "mlcbuild.compiler.stages.plan_search:run",
        inputs={
            "parameters": inputs.parameters,
            "imported": inputs.shards.manifest,
            "index": inputs.statistic("statistics.json"),
        },
        outputs={"groups": "groups/", "manifest": "manifest.json"},
        manifest="manifest",
        discoverer=SearchGroups(owner=str(context.label), inputs=inputs),
    )
    merge = context.stage(
        "MergeScales",
        "mlcbuild.compiler.stages.merge_scales:run",
        inputs={
            "found": DiscoveredArtifacts(action=plan.identifier, group=_FOUND),
            "parameters": inputs.parameters,
        },
        outputs={"scales": "scales.safetensors"},
    )
    return ApplyScales(parameters=inputs.parameters, scales=merge.output("out/scales.safetensors"))


METHOD = CalibrationMethod(
    name="awq",
    doc="Scales of channels that meet large inputs, and limits of groups, with which the scheme's error is least.",
    refusal=_refusal,
    is_default=lambda scheme: scheme.kind in KINDS,
    declare=_declare,
)
