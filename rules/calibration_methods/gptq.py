"""GPTQ: Gptq for each imported shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcbuild.engine.action import Action, DerivedArtifact
from mlcbuild.rules.calibration import CalibrationInputs, CalibrationMethod
from mlcbuild.rules.rule import RuleContext, stage_action
from mlcbuild.workspace.schema import Attribute, AttributeKind

if TYPE_CHECKING:
    from mlcbuild.compiler.quantization.scheme import QuantizationScheme

KINDS = ("group-quant", "awq", "ft-quant")
"""Kinds of schemes whose encoder is a `quantization.integer_grid.GridEncoder`."""
ACT_ORDER = Attribute(
    name="act_order",
    kind=AttributeKind.BOOLEAN,
    default=False,
    doc="For gptq: columns that meet the largest inputs are rounded first. Groups stay where they are, with the scales "
    "of the weights as they were.",
)


@dataclass(frozen=True, kw_only=True)
class GptqShards:
    """Announces Gptq of a shard. The action's output has the number in its name, as shards have."""

    inputs: CalibrationInputs
    by_activations: bool

    def __call__(self, *, owner: str, index: int, shard: DerivedArtifact) -> tuple[Action, DerivedArtifact]:
        stage = self.inputs.precision.stage("mlcbuild.compiler.stages.gptq:run", "encoder")
        file = f"calibrated_{index:05d}.safetensors"
        action = stage_action(
            f"{owner} Gptq {index}",
            "Gptq",
            stage.function,
            owner=owner,
            inputs={
                "shard": shard,
                "parameters": self.inputs.parameters,
                "statistics": self.inputs.statistics,
                **stage.inputs,
            },
            outputs={"calibrated": file},
            parameters={"by_activations": self.by_activations},
            plugins=stage.plugins,
        )
        return action, action.output(f"out/{file}")


def _refusal(scheme: QuantizationScheme) -> str:
    return "" if scheme.kind in KINDS else "it chooses integers in groups of columns, which the scheme does not store"


def _declare(context: RuleContext, inputs: CalibrationInputs) -> GptqShards:
    return GptqShards(inputs=inputs, by_activations=context.target.boolean(ACT_ORDER.name))


METHOD = CalibrationMethod(
    name="gptq",
    doc="Integers that are chosen one column after the other, each making up for the errors of those before it.",
    refusal=_refusal,
    is_default=lambda _: False,
    declare=_declare,
    attributes=(ACT_ORDER,),
)
