"""`model`: a model's configuration, and, where it has them, its weights and tokenizer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlcbuild.engine.action import Artifact, DerivedArtifact, SourceArtifact
from mlcbuild.rules.checkpoint_formats import format_plugins, reader_plugins
from mlcbuild.rules.families import family_plugins
from mlcbuild.rules.known_model import known_model
from mlcbuild.rules.licenses import UnknownLicenseError, license_expression
from mlcbuild.rules.lora import LORA, LORA_SHARES, lora
from mlcbuild.rules.providers import FilesInfo, LicenseInfo, ModelInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    target = context.target
    source_label, config_label = target.optional_label("source"), target.optional_label("config")
    if source_label is None and config_label is None:
        raise context.error("a model has `source`, or `config` where only its shape is needed")
    own_license = _license(context)
    config = None
    if config_label is not None:
        files = context.files(config_label).files
        if len(files) != 1 or not isinstance(files[0][1], SourceArtifact | DerivedArtifact):
            raise context.error(f"config {config_label} is not one file", attribute="config")
        config = _Config(file=files[0][1], attribute="config")
    if source_label is None:
        assert config is not None
        if target.has("lora"):
            raise context.error("a model without `source` has no weights to merge adapters into", attribute="lora")
        return (_model(context, config), FilesInfo(files=(("config.json", config.file),)), own_license)
    source = context.files(source_label)
    if not source.files:
        raise context.error(f"source {source_label} has no files", attribute="source")
    imported = context.stage(
        "ImportConfig",
        "mlcbuild.compiler.stages.import_config:run",
        inputs={"source": source},
        outputs={
            "config": "config.json",
            "tokenizer": "tokenizer/",
            "vocabulary": "vocabulary.json",
            "licenses": "licenses/",
        },
        plugins={"families": family_plugins(), "readers": reader_plugins()},
    )
    if config is None:
        own = dict(source.files).get("config.json")
        config = _Config(file=imported.output("out/config.json"), attribute="source", copied_from=own)
    model = replace(
        _model(context, config),
        tokenizer=imported.output("out/tokenizer/"),
        vocabulary=imported.output("out/vocabulary.json"),
        source=source,
        lora=lora(context),
    )
    placed = FilesInfo(files=(("config.json", config.file), ("tokenizer/", imported.output("out/tokenizer/"))))
    return (model, placed, replace(own_license, stated=imported.output("out/licenses/")))


def _license(context: RuleContext) -> LicenseInfo:
    """What the attributes say. Raises WorkspaceError for what is no SPDX expression."""
    expression = context.target.optional_string("license") or ""
    if expression:
        try:
            expression = license_expression(expression)
        except UnknownLicenseError as error:
            raise context.error(str(error), attribute="license", advice=error.advice) from None
    texts: list[tuple[str, Artifact]] = []
    for label in context.target.labels("license_files"):
        files = context.files(label).files
        if not files:
            raise context.error(f"license file {label} has no files", attribute="license_files")
        texts += files
    return LicenseInfo(expression=expression, files=FilesInfo(files=tuple(texts)))


@dataclass(frozen=True, kw_only=True)
class _Config:
    """A config.json, the attribute that leads to it, and the file that ImportConfig copies it from."""

    file: SourceArtifact | DerivedArtifact
    attribute: str
    copied_from: Artifact | None = None


def _model(context: RuleContext, config: _Config) -> ModelInfo:
    """A model that is known by its config.json, which its family reads: at once, where that is in the workspace."""
    at_hand = config.copied_from or config.file
    known = None
    if isinstance(at_hand, SourceArtifact):
        known = known_model(context, at_hand, attribute=config.attribute)
    resolved = context.stage(
        "ResolveModel",
        "mlcbuild.compiler.stages.resolve_model:run",
        inputs={"config": config.file},
        outputs={"model": "model.json", "parameters": "parameters.json"},
        plugins={"families": family_plugins(), "formats": format_plugins()},
    )
    return ModelInfo(
        config=config.file,
        known=known,
        model=resolved.output("out/model.json"),
        parameters=resolved.output("out/parameters.json"),
    )


MODEL = Rule(
    schema=RuleSchema(
        name="model",
        doc="A model of a family that `mlcbuild info` names.",
        attributes=(
            Attribute(
                name="source",
                kind=AttributeKind.LABEL,
                allow_files=True,
                doc="A GGUF file, all parts of a split one, or a folder as on Hugging Face: config.json, weights "
                "(safetensors, or torch checkpoints, which are read without running pickle code), tokenizer.",
            ),
            Attribute(
                name="config",
                kind=AttributeKind.LABEL,
                allow_files=True,
                doc="A config.json. Alone it is the model's shape, enough for a library; beside `source` it stands "
                "in for the source's own.",
            ),
            LORA,
            LORA_SHARES,
            Attribute(
                name="license",
                kind=AttributeKind.STRING,
                nonempty=True,
                doc="The licence of the weights, as an SPDX expression. Left out: what the source says, in a GGUF "
                "file's metadata or in README.md. `mlcbuild release` carries it along.",
            ),
            Attribute(
                name="license_files",
                kind=AttributeKind.LABEL_LIST,
                allow_files=True,
                doc="Texts of the licence, beside those that the source has (LICENSE, NOTICE and their like).",
            ),
        ),
        provides=("model", "files", "license"),
    ),
    implementation=implement,
)
