"""`quantized_weights`: a model's weights, quantized, in MLC's shard format.

ConfigureModel → ImportWeights → Quantize (one a shard, as its manifest announces) → IndexWeights. For a model with LoRA
adapters, MergeLora comes before each Quantize, and for weights that are calibrated the method's action (`calibration`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlcbuild.engine.action import Action, DerivedArtifact, DiscoveredArtifacts, Discovery
from mlcbuild.rules.automatic_precision import (
    MEASURED,
    AutomaticPrecision,
    MeasureShard,
    automatic_attributes,
    automatic_precision,
)
from mlcbuild.rules.calibration import ShardCalibration, calibration_attributes, calibration_of, merge_statistics
from mlcbuild.rules.configured_model import ConfiguredModel, configure
from mlcbuild.rules.imported_weights import ImportedShards, import_weights, imported_shards
from mlcbuild.rules.precision import QUANTIZATION, TargetPrecision
from mlcbuild.rules.providers import FilesInfo, ModelInfo, WeightsInfo
from mlcbuild.rules.requantizing import ALLOW_REQUANTIZE
from mlcbuild.rules.rule import Providers, Rule, RuleContext, stage_action
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

ENCODE = Attribute(
    name="encode",
    kind=AttributeKind.CHOICE,
    allowed=("raw", "f32-to-bf16"),
    default="raw",
    doc="How float32 tensors are stored. f32-to-bf16 is MLC-LLM's default: half the size, and lossy.",
)


@dataclass(frozen=True, kw_only=True)
class QuantizeShards:
    """Announces one Quantize action for each of the `imported` shards, after one that calibrates it where the target
    has a `calibration`, or those that `measure` it where schemes are chosen, and the groups of what they make."""

    owner: str
    imported: ImportedShards
    parameters: DerivedArtifact
    precision: TargetPrecision
    encode: str
    allow_requantize: bool
    calibration: ShardCalibration | None = None
    measure: MeasureShard | None = None

    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery:
        imported = self.imported(discovering=discovering, manifest=manifest)
        ((_, shards),) = imported.groups
        stage = self.precision.stage("mlcbuild.compiler.stages.quantize:run", "encoder")
        actions, calibrations = [], []
        measured: list[tuple[Action, DerivedArtifact]] = []
        for index, shard in enumerate(shards):
            assert isinstance(shard, DerivedArtifact)
            given, parameters = shard, self.parameters
            if self.measure is not None:
                measured += self.measure(owner=self.owner, index=index, shard=shard)
            if self.calibration is not None:
                calibrated, given = self.calibration.calibrate(owner=self.owner, index=index, shard=shard)
                calibrations.append(calibrated)
                parameters = self.calibration.parameters
            actions.append(
                stage_action(
                    f"{self.owner} Quantize {index}",
                    "Quantize",
                    stage.function,
                    owner=self.owner,
                    inputs={
                        "shard": given,
                        "parameters": parameters,
                        **stage.inputs,
                    },
                    outputs={
                        "shard_out": f"params_shard_{index}.bin",
                        "records": f"records_{index:05d}.json",
                    },
                    parameters={
                        "encode": self.encode,
                        "index": index,
                        **({"allow_requantize": True} if self.allow_requantize else {}),
                    },
                    plugins=stage.plugins,
                )
            )
        made = tuple(
            DerivedArtifact(action=action.identifier, path=f"out/params_shard_{index}.bin")
            for index, action in enumerate(actions)
        )
        records = tuple(
            DerivedArtifact(action=action.identifier, path=f"out/records_{index:05d}.json")
            for index, action in enumerate(actions)
        )
        return Discovery(
            actions=(*imported.actions, *(action for action, _ in measured), *calibrations, *actions),
            groups=(
                *imported.groups,
                *([(MEASURED, tuple(file for _, file in measured))] if self.measure is not None else []),
                ("records", records),
                ("shards", made),
            ),
        )


def quantize(
    context: RuleContext,
    model: ModelInfo,
    configured: ConfiguredModel,
    *,
    automatic: AutomaticPrecision | None = None,
    encode: str,
) -> WeightsInfo:
    """Declare the actions from a model's source to its quantized shards, calibrated where the target says so. Raises
    WorkspaceError for a bare shape."""
    source = configured if automatic is None else replace(configured, parameters=automatic.parameters)
    calibration = None
    if automatic is None or context.target.has("calibration_method"):
        calibration = calibration_of(
            context,
            model,
            precision=configured.precision,
            parameters=source.parameters,
            shards=imported_shards(context, model),
            statistics=None if automatic is None else merge_statistics(context, automatic.measure.observing),
        )
    imported = import_weights(
        context,
        model,
        source,
        QuantizeShards(
            owner=str(context.label),
            imported=ImportedShards(owner=str(context.label), parameters=source.parameters, lora=model.lora),
            parameters=configured.parameters,
            precision=configured.precision,
            encode=encode,
            allow_requantize=context.target.boolean(ALLOW_REQUANTIZE.name),
            calibration=calibration,
            measure=None if automatic is None else automatic.measure,
        ),
    )
    stage = configured.precision.stage("mlcbuild.compiler.stages.index_weights:run")
    index = context.stage(
        "IndexWeights",
        stage.function,
        inputs={
            "records": DiscoveredArtifacts(action=imported.identifier, group="records"),
            "parameters": configured.parameters,
            **stage.inputs,
        },
        outputs={"index": "tensor-cache.json"},
        parameters={"encode": encode},
        plugins=stage.plugins,
    )
    return WeightsInfo(
        index=index.output("out/tensor-cache.json"),
        shards=DiscoveredArtifacts(action=imported.identifier, group="shards"),
    )


def implement(context: RuleContext) -> Providers:
    model = context.required("model", ModelInfo)
    automatic = automatic_precision(context, model)
    configured = configure(context, model, quantization=None if automatic is None else automatic.precision)
    weights = quantize(context, model, configured, automatic=automatic, encode=context.target.string("encode"))
    index, shards = ("tensor-cache.json", weights.index), ("", weights.shards)
    return (weights, FilesInfo(files=(index, shards, *configured.precision.files)))


QUANTIZED_WEIGHTS = Rule(
    schema=RuleSchema(
        name="quantized_weights",
        doc="A model's weights, quantized and sharded in MLC-LLM's format, with their index tensor-cache.json.",
        attributes=(
            Attribute(name="model", kind=AttributeKind.LABEL, mandatory=True, provides=("model",), doc="The model."),
            QUANTIZATION,
            ENCODE,
            ALLOW_REQUANTIZE,
            *calibration_attributes(),
            *automatic_attributes(),
        ),
        provides=("weights", "files"),
    ),
    implementation=implement,
)
