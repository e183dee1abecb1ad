"""ImportWeights, and what its manifest announces of each shard: for a model with LoRA adapters, MergeLora."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.manifest import read_manifest
from mlcbuild.engine.action import Action, DerivedArtifact, DiscoveredArtifacts, Discoverer, Discovery
from mlcbuild.rules.checkpoint_formats import reader_plugins
from mlcbuild.rules.configured_model import ConfiguredModel
from mlcbuild.rules.providers import FilesInfo, LoraInfo, ModelInfo
from mlcbuild.rules.rule import RuleContext, stage_action

_MNEMONIC = "ImportWeights"
IMPORTED = "imported"
"""The group of shards, with adapters merged into them."""


@dataclass(frozen=True, kw_only=True)
class ImportedShards:
    """Announces the shards that ImportWeights wrote as the group IMPORTED, after actions that merge `lora` into them
    where the model has adapters."""

    owner: str
    parameters: DerivedArtifact
    lora: LoraInfo

    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery:
        merges: list[Action] = []
        shards: list[DerivedArtifact] = []
        for index, shard in enumerate(read_manifest(manifest)["shards"]):
            imported = DerivedArtifact(action=discovering, path=f"out/shards/{shard['file']}")
            if self.lora.adapters.files:
                merges.append(self._merge(imported, shard["file"], index))
                imported = DerivedArtifact(action=merges[-1].identifier, path=f"out/{shard['file']}")
            shards.append(imported)
        return Discovery(actions=tuple(merges), groups=((IMPORTED, tuple(shards)),))

    def _merge(self, imported: DerivedArtifact, file: str, index: int) -> Action:
        """The merged shard has the imported one's name: what no adapter changes is quantized once for both models."""
        return stage_action(
            _merging(self.owner, index),
            "MergeLora",
            "mlcbuild.compiler.stages.merge_lora:run",
            owner=self.owner,
            inputs={"shard": imported, "parameters": self.parameters, "adapters": self.lora.adapters},
            outputs={"merged": file},
            parameters={"shares": list(self.lora.shares)},
        )


def import_weights(
    context: RuleContext, model: ModelInfo, configured: ConfiguredModel, discoverer: Discoverer | None = None
) -> Action:
    """Declare ImportWeights, one a target. A `discoverer` announces the group IMPORTED, and what else it wants of the
    shards. Raises WorkspaceError for a bare shape."""
    return context.stage(
        _MNEMONIC,
        "mlcbuild.compiler.stages.import_weights:run",
        inputs={"source": source_of(context, model), "parameters": configured.parameters},
        outputs={"manifest": "manifest.json", "shards": "shards/"},
        plugins={"readers": reader_plugins()},
        manifest="manifest",
        discoverer=discoverer
        or ImportedShards(owner=str(context.label), parameters=configured.parameters, lora=model.lora),
    )


def source_of(context: RuleContext, model: ModelInfo) -> FilesInfo:
    """The weights of a model. Raises WorkspaceError for a bare shape."""
    if model.source is None:
        raise context.error(
            f"model {context.target.label_of('model')} has no weights",
            attribute="model",
            advice=("give the model a `source`; a config alone is enough only for a model_library",),
        )
    return model.source


@dataclass(frozen=True, kw_only=True)
class ShardFiles:
    """The shards of a target's `import_weights`, for whoever declares it not: all of them, or each by itself."""

    owner: str
    is_merged: bool

    @property
    def all(self) -> DiscoveredArtifacts:
        """With adapters merged into them."""
        return DiscoveredArtifacts(action=f"{self.owner} {_MNEMONIC}", group=IMPORTED)

    @property
    def manifest(self) -> DerivedArtifact:
        """Which tensors each has."""
        return DerivedArtifact(action=self.all.action, path="out/manifest.json")

    def shard(self, *, number: int, file: str) -> DerivedArtifact:
        """The one that is at a place of the manifest, with this file."""
        if self.is_merged:
            return DerivedArtifact(action=_merging(self.owner, number), path=f"out/{file}")
        return DerivedArtifact(action=self.all.action, path=f"out/shards/{file}")


def imported_shards(context: RuleContext, model: ModelInfo) -> ShardFiles:
    """The shards of the target's `import_weights` of a model."""
    return ShardFiles(owner=str(context.label), is_merged=bool(model.lora.adapters.files))


def _merging(owner: str, number: int) -> str:
    return f"{owner} MergeLora {number}"
