"""`logits_check`: a package, run on the device it was built for, says what a reference says."""

from __future__ import annotations

from mlcbuild.engine.action import Action, CachePolicy, JsonValue
from mlcbuild.rules.providers import FilesInfo, PackageInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext, StageInput
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

_PACKAGE = (PackageInfo.name,)


def implement(context: RuleContext) -> Providers:
    tolerance = context.target.number("tolerance")
    if tolerance <= 0:
        raise context.error("a tolerance is above 0", attribute="tolerance")
    if context.target.integer("max_tokens") < 1:
        raise context.error("at least one token has to be generated", attribute="max_tokens")
    chosen = _run(
        context,
        "RunReference",
        "reference",
        "choose",
        parameters={
            "prompts": list(context.target.strings("prompts")),
            "max_tokens": context.target.integer("max_tokens"),
        },
        outputs={"tokens": "tokens.json"},
    )
    tokens = chosen.output("out/tokens.json")
    followed = _run(context, "RunLogits", "package", "follow", inputs={"tokens": tokens})
    compared = context.stage(
        "CompareLogits",
        "mlcbuild.compiler.stages.compare_logits:run",
        inputs={
            "reference": chosen.output("out/logits.npy"),
            "checked": followed.output("out/logits.npy"),
            "tokens": tokens,
        },
        outputs={"report": "report.json"},
        parameters={"tolerance": tolerance},
    )
    return (FilesInfo(files=(("report.json", compared.output("out/report.json")),)),)


def _run(
    context: RuleContext,
    mnemonic: str,
    attribute: str,
    function: str,
    *,
    parameters: dict[str, JsonValue] | None = None,
    inputs: dict[str, StageInput] | None = None,
    outputs: dict[str, str] | None = None,
) -> Action:
    """Run a package. What comes is a measurement: it depends on the device, which no key counts."""
    package = context.required(attribute, PackageInfo)
    return context.stage(
        mnemonic,
        f"mlcbuild.compiler.stages.run_logits:{function}",
        inputs={"package": context.files(context.target.label_of(attribute)), **(inputs or {})},
        outputs={"logits": "logits.npy", **(outputs or {})},
        parameters=parameters or {},
        toolchains=("tvm",),
        requirements=package.platform.run_requirements,
        cache=CachePolicy.NONE,
    )


LOGITS_CHECK = Rule(
    schema=RuleSchema(
        name="logits_check",
        doc="Runs a package where its platform is, feeds it the tokens that a reference package chooses, and compares "
        "the logits. For a GPU the run asks for one of its architecture. Runs are measurements: they are made anew in "
        "each build.",
        attributes=(
            Attribute(
                name="package",
                kind=AttributeKind.LABEL,
                mandatory=True,
                provides=_PACKAGE,
                doc="The model_package to check.",
            ),
            Attribute(
                name="reference",
                kind=AttributeKind.LABEL,
                mandatory=True,
                provides=_PACKAGE,
                doc="The model_package to believe, for instance of the same model for CPUs.",
            ),
            Attribute(
                name="prompts",
                kind=AttributeKind.STRING_LIST,
                mandatory=True,
                nonempty=True,
                doc="Texts to go on from, without a chat template.",
            ),
            Attribute(
                name="max_tokens", kind=AttributeKind.INTEGER, default=8, doc="How many tokens follow each prompt."
            ),
            Attribute(
                name="tolerance",
                kind=AttributeKind.NUMBER,
                mandatory=True,
                doc="The largest difference between two logits.",
            ),
        ),
        provides=("files",),
    ),
    implementation=implement,
)
