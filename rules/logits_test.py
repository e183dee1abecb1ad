"""`logits_test`: a package, run on the device it was built for, says what a reference says."""

from __future__ import annotations

from mlcbuild.engine.action import CachePolicy
from mlcbuild.rules.providers import PackageInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.rules.tested import PACKAGE, TAGS, TEST_ATTRIBUTES, cache_policy, declare_package_test, run_requirements
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

_STAGES = "mlcbuild.compiler.stages"
_MAX_TOKENS = 8


def implement(context: RuleContext) -> Providers:
    target = context.target
    tolerance = target.number("tolerance")
    if tolerance <= 0:
        raise context.error("a tolerance is above 0", attribute="tolerance")
    reference, file = target.optional_label("reference"), target.optional_label("reference_file")
    if (reference is None) == (file is None):
        raise context.error(
            "two references" if reference else "no reference",
            attribute="reference" if reference else "name",
            advice=("give either reference, a package, or reference_file, a .npz file of logits",),
        )
    if file is not None:
        return _against_file(context, tolerance)
    prompts = target.strings("prompts")
    if not prompts:
        raise context.error("no prompts", advice=("a reference that is a package needs prompts to go on from",))
    policy = cache_policy(context)
    assert reference is not None
    chosen = context.stage(
        "RunReference",
        f"{_STAGES}.run_reference:run",
        inputs={"package": context.files(reference)},
        outputs={"tokens": "tokens.json", "logits": "logits.npy"},
        parameters={"prompts": list(prompts), "max_tokens": target.optional_integer("max_tokens") or _MAX_TOKENS},
        toolchains=("tvm",),
        requirements=run_requirements(context, "reference"),
        cache=CachePolicy.LOCAL if policy is CachePolicy.LOCAL else CachePolicy.ALL,
    )
    return declare_package_test(
        context,
        "LogitsTest",
        f"{_STAGES}.logits_test:against_package",
        inputs={"tokens": chosen.output("out/tokens.json"), "logits": chosen.output("out/logits.npy")},
        parameters={"tolerance": tolerance},
        packages=(PACKAGE.name, "reference"),
    )


def _against_file(context: RuleContext, tolerance: float) -> Providers:
    label = context.target.label_of("reference_file")
    for attribute in ("prompts", "max_tokens"):
        if context.target.has(attribute):
            context.report(
                f"{attribute} is for a reference that is a package: a file has its tokens", attribute=attribute
            )
    files = context.files(label)
    if not files.is_single_file or not files.files[0][0].endswith(".npz"):
        raise context.error(
            f"reference_file {label} is no .npz file",
            attribute="reference_file",
            advice=("make one with: mlcbuild run LABEL -- --prompt TEXT --logits FILE.npz",),
        )
    return declare_package_test(
        context,
        "LogitsTest",
        f"{_STAGES}.logits_test:against_file",
        inputs={"reference": files.files[0][1]},
        parameters={"tolerance": tolerance},
    )


LOGITS_TEST = Rule(
    schema=RuleSchema(
        name="logits_test",
        doc="Runs a package where its platform is, feeds it the tokens of a reference, and compares the logits: of a "
        "package that goes on from prompts, or of a file." + TAGS,
        attributes=(
            PACKAGE,
            Attribute(
                name="reference",
                kind=AttributeKind.LABEL,
                provides=(PackageInfo.name,),
                doc="The model_package to believe, for instance of the same model for CPUs.",
            ),
            Attribute(
                name="reference_file",
                kind=AttributeKind.LABEL,
                allow_files=True,
                provides=("files",),
                doc="Instead of a package: a .npz file with tokens and logits, as `mlcbuild run LABEL -- --logits "
                "FILE.npz` writes it, for one prompt or a batch.",
            ),
            Attribute(
                name="prompts",
                kind=AttributeKind.STRING_LIST,
                nonempty=True,
                doc="Texts that the reference goes on from, without a chat template.",
            ),
            Attribute(
                name="max_tokens",
                kind=AttributeKind.INTEGER,
                minimum=1,
                doc=f"How many tokens follow each prompt. Left out: {_MAX_TOKENS}.",
            ),
            Attribute(
                name="tolerance",
                kind=AttributeKind.NUMBER,
                mandatory=True,
                doc="The largest difference between two logits.",
            ),
            *TEST_ATTRIBUTES,
        ),
        provides=("test",),
    ),
    implementation=implement,
)
