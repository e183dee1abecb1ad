"""`quantized_weights`: a model's weights, quantized, in MLC's shard format.

ConfigureModel → ImportWeights → Quantize (one a shard, as its manifest announces) → IndexWeights. For a model with LoRA
adapters, MergeLora comes before each Quantize, and for weights that are calibrated the method's action (`calibration`).
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.engine.action import DerivedArtifact, DiscoveredArtifacts, Discovery
from mlcbuild.rules import schemes
from mlcbuild.rules.calibration import ShardCalibration, calibration_attributes, calibration_of
from mlcbuild.rules.configured_model import ConfiguredModel, configure
from mlcbuild.rules.imported_weights import ImportedShards, import_weights, imported_shards
from mlcbuild.rules.providers import FilesInfo, ModelInfo, WeightsInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext, stage_action
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

QUANTIZATION = Attribute(
    name="quantization",
    kind=AttributeKind.CHOICE,
    allowed=schemes.NAMES,
    mandatory=True,
    doc="How matrices are stored, by MLC-LLM's names; those that begin with q0 do not quantize.",
)
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
    has a `calibration`, and the groups of what they make."""

    owner: str
    imported: ImportedShards
    parameters: DerivedArtifact
    quantization: str
    encode: str
    calibration: ShardCalibration | None = None

    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery:
        imported = self.imported(discovering=discovering, manifest=manifest)
        ((_, shards),) = imported.groups
        actions, calibrations = [], []
        for index, shard in enumerate(shards):
            assert isinstance(shard, DerivedArtifact)
            given, parameters = shard, self.parameters
            if self.calibration is not None:
                calibrated, given = self.calibration.calibrate(owner=self.owner, index=index, shard=shard)
                calibrations.append(calibrated)
                parameters = self.calibration.parameters
            actions.append(
                stage_action(
                    f"{self.owner} Quantize {index}",
                    "Quantize",
                    "mlcbuild.compiler.stages.quantize:run",
                    owner=self.owner,
                    inputs={
                        "shard": given,
                        "parameters": parameters,
                    },
                    outputs={
                        "shard_out": f"params_shard_{index}.bin",
                        "records": f"records_{index:05d}.json",
                    },
                    parameters={"encode": self.encode, "index": index},
                    plugins={
                        "scheme": schemes.plugin(self.quantization),
                        "encoder": schemes.scheme(self.quantization).encoder,
                    },
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
            actions=(*imported.actions, *calibrations, *actions),
            groups=(*imported.groups, ("records", records), ("shards", made)),
        )


def quantize(
    context: RuleContext, model: ModelInfo, configured: ConfiguredModel, *, quantization: str, encode: str
) -> WeightsInfo:
    """Declare the actions from a model's source to its quantized shards, calibrated where the target says so. Raises
    WorkspaceError for a bare shape."""
    calibration = calibration_of(
        context,
        model,
        quantization=quantization,
        parameters=configured.parameters,
        shards=imported_shards(context),
    )
    imported = import_weights(
        context,
        model,
        configured,
        QuantizeShards(
            owner=str(context.label),
            imported=ImportedShards(owner=str(context.label), parameters=configured.parameters, lora=model.lora),
            parameters=configured.parameters,
            quantization=quantization,
            encode=encode,
            calibration=calibration,
        ),
    )
    index = context.stage(
        "IndexWeights",
        "mlcbuild.compiler.stages.index_weights:run",
        inputs={
            "records": DiscoveredArtifacts(action=imported.identifier, group="records"),
            "parameters": configured.parameters,
        },
        outputs={"index": "tensor-cache.json"},
        parameters={"encode": encode},
        plugins={"scheme": schemes.plugin(quantization)},
    )
    return WeightsInfo(
        index=index.output("out/tensor-cache.json"),
        shards=DiscoveredArtifacts(action=imported.identifier, group="shards"),
    )


def implement(context: RuleContext) -> Providers:
    model, quantization = context.required("model", ModelInfo), context.target.string("quantization")
    configured = configure(context, model, quantization=quantization)
    weights = quantize(context, model, configured, quantization=quantization, encode=context.target.string("encode"))
    return (weights, FilesInfo(files=(("tensor-cache.json", weights.index), ("", weights.shards))))


QUANTIZED_WEIGHTS = Rule(
    schema=RuleSchema(
        name="quantized_weights",
        doc="A model's weights, quantized and sharded in MLC-LLM's format, with their index tensor-cache.json.",
        attributes=(
            Attribute(name="model", kind=AttributeKind.LABEL, mandatory=True, provides=("model",), doc="The model."),
            QUANTIZATION,
            ENCODE,
            *calibration_attributes(),
        ),
        provides=("weights", "files"),
    ),
    implementation=implement,
)
