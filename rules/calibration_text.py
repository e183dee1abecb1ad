"""`calibration_text`: a sample of texts, on which models are observed before they are quantized."""

from __future__ import annotations

from mlcbuild.engine.action import Artifact, SourceArtifact
from mlcbuild.rules.backend import PlatformInfo
from mlcbuild.rules.calibration import CalibrationTextInfo
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.requirements import REQUIREMENTS, requirements_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.rules.text_files import check_text
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    target = context.target
    if target.integer("shards") > target.integer("samples"):
        context.report(
            f"{target.integer('samples')} samples do not fill {target.integer('shards')} shards", attribute="shards"
        )
    platform = context.required("observed_on", PlatformInfo)
    if platform.unlike_devices:
        context.report(
            f"statistics of {target.label_of('observed_on')} would depend on the machine: {platform.unlike_devices}",
            attribute="observed_on",
            advice=("name a platform of one architecture",),
        )
    info = CalibrationTextInfo(
        texts=FilesInfo(files=tuple(_texts(context))),
        samples=target.integer("samples"),
        tokens=target.integer("tokens"),
        seed=target.integer("seed"),
        shards=target.integer("shards"),
        platform=platform,
        requirements=requirements_of(target),
    )
    return (info,)


def _texts(context: RuleContext) -> list[tuple[str, Artifact]]:
    """The files by their places among all: two may have one name."""
    found: list[tuple[str, Artifact]] = []
    for place, label in enumerate(context.target.labels("texts")):
        files = context.files(label).files
        if not files:
            raise context.error(f"{label} has no files", attribute="texts")
        for path, artifact in files:
            if isinstance(artifact, SourceArtifact) and not path.endswith("/"):
                check_text(context, artifact, attribute="texts", purpose="calibration")
            found.append((f"{place:05}/{path}", artifact))
    return found


CALIBRATION_TEXT = Rule(
    schema=RuleSchema(
        name="calibration_text",
        doc="A sample of texts, on which a model is observed before it is quantized: `calibration` of a "
        "model_package, quantized_weights or a package for another engine names it. It makes nothing by itself.",
        attributes=(
            Attribute(
                name="texts",
                kind=AttributeKind.LABEL_LIST,
                mandatory=True,
                nonempty=True,
                allow_files=True,
                provides=("files",),
                doc="Texts in UTF-8: files, or folders of them. They should be like what the model will read.",
            ),
            Attribute(
                name="samples",
                kind=AttributeKind.INTEGER,
                minimum=1,
                default=64,
                doc="How many pieces of the texts the model reads. Fewer pieces in the texts are an error.",
            ),
            Attribute(
                name="tokens",
                kind=AttributeKind.INTEGER,
                minimum=2,
                default=512,
                doc="Tokens of a piece, those counted that the model expects at the beginning of a text.",
            ),
            Attribute(
                name="seed", kind=AttributeKind.INTEGER, minimum=0, default=0, doc="Chooses pieces, and their order."
            ),
            Attribute(
                name="shards",
                kind=AttributeKind.INTEGER,
                minimum=1,
                default=4,
                doc="Into how many actions the reading is divided, which may run at the same time and on several "
                "machines. A piece stays in its shard, so another text or piece reruns the shards that it changes.",
            ),
            Attribute(
                name="observed_on",
                kind=AttributeKind.LABEL,
                provides=(PlatformInfo.name,),
                default=Label("@platforms//", "x86-64-v3"),
                doc="What the model is observed on, whatever its packages are for: the machine that observes must be "
                "such a platform, and has its device, if it is a device's. It names one architecture. Statistics of "
                "two platforms differ by roundings.",
            ),
            REQUIREMENTS,
        ),
        provides=(CalibrationTextInfo.name,),
    ),
    implementation=implement,
)
