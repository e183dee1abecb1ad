"""`quantized_weights`: a model's weights, quantized, in MLC's shard format.

ConfigureModel → ImportWeights → Quantize (one a shard, as its manifest announces) → IndexWeights. For a model with LoRA
adapters, MergeLora comes before each Quantize.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.manifest import read_manifest
from mlcbuild.engine.action import Action, DerivedArtifact, DiscoveredArtifacts, Discovery
from mlcbuild.rules import schemes
from mlcbuild.rules.checkpoint_formats import reader_plugins
from mlcbuild.rules.configured_model import ConfiguredModel, configure
from mlcbuild.rules.providers import FilesInfo, LoraInfo, ModelInfo, WeightsInfo
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
    """Announces one Quantize action for each shard that ImportWeights wrote, after one that merges `lora` into it where
    the model has adapters, and the groups of what they make."""

    owner: str
    parameters: DerivedArtifact
    lora: LoraInfo
    quantization: str
    encode: str

    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery:
        document = read_manifest(manifest)
        actions, merges = [], []
        for index, shard in enumerate(document["shards"]):
            imported = DerivedArtifact(action=discovering, path=f"out/shards/{shard['file']}")
            if self.lora.adapters.files:
                merges.append(self._merge(imported, shard["file"], index))
                imported = DerivedArtifact(action=merges[-1].identifier, path=f"out/{shard['file']}")
            actions.append(
                stage_action(
                    f"{self.owner} Quantize {index}",
                    "Quantize",
                    "mlcbuild.compiler.stages.quantize:run",
                    owner=self.owner,
                    inputs={
                        "shard": imported,
                        "parameters": self.parameters,
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
        shards = tuple(
            DerivedArtifact(action=action.identifier, path=f"out/params_shard_{index}.bin")
            for index, action in enumerate(actions)
        )
        records = tuple(
            DerivedArtifact(action=action.identifier, path=f"out/records_{index:05d}.json")
            for index, action in enumerate(actions)
        )
        return Discovery(actions=(*merges, *actions), groups=(("records", records), ("shards", shards)))

    def _merge(self, imported: DerivedArtifact, file: str, index: int) -> Action:
        """The merged shard has the imported one's name: what no adapter changes is quantized once for both models."""
        return stage_action(
            f"{self.owner} MergeLora {index}",
            "MergeLora",
            "mlcbuild.compiler.stages.merge_lora:run",
            owner=self.owner,
            inputs={"shard": imported, "parameters": self.parameters, "adapters": self.lora.adapters},
            outputs={"merged": file},
            parameters={"shares": list(self.lora.shares)},
        )


def quantize(
    context: RuleContext, model: ModelInfo, configured: ConfiguredModel, *, quantization: str, encode: str
) -> WeightsInfo:
    """Declare the actions from a model's source to its quantized shards. Raises WorkspaceError for a bare shape."""
    if model.source is None:
        raise context.error(
            f"model {context.target.label_of('model')} has no weights",
            attribute="model",
            advice=("give the model a `source`; a config alone is enough only for a model_library",),
        )
    imported = context.stage(
        "ImportWeights",
        "mlcbuild.compiler.stages.import_weights:run",
        inputs={"source": model.source, "parameters": configured.parameters},
        outputs={"manifest": "manifest.json", "shards": "shards/"},
        plugins={"readers": reader_plugins()},
        manifest="manifest",
        discoverer=QuantizeShards(
            owner=str(context.label),
            parameters=configured.parameters,
            lora=model.lora,
            quantization=quantization,
            encode=encode,
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
        ),
        provides=("weights", "files"),
    ),
    implementation=implement,
)
