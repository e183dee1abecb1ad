"""`perplexity_test`: how well a package expects a text."""

from __future__ import annotations

from mlcbuild.engine.action import SourceArtifact
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.rules.tested import PACKAGE, TAGS, TEST_ATTRIBUTES, declare_package_test
from mlcbuild.rules.text_files import check_text
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    target = context.target
    text = context.files(target.label_of("text"))
    if not text.is_single_file:
        raise context.error(f"text {target.label_of('text')} is not one file", attribute="text")
    ((_, artifact),) = text.files
    if isinstance(artifact, SourceArtifact):
        check_text(context, artifact, attribute="text", purpose="perplexity")
    window, stride = target.optional_integer("window") or 0, target.optional_integer("stride") or 0
    if window and stride > window:
        context.report(
            f"stride {stride} is above window {window}: tokens between would be left out", attribute="stride"
        )
    bound = target.get("max_perplexity")
    if isinstance(bound, float) and bound <= 1:
        context.report("no perplexity is below 1", attribute="max_perplexity")
    return declare_package_test(
        context,
        "PerplexityTest",
        "mlcbuild.compiler.stages.perplexity_test:run",
        inputs={"text": artifact},
        parameters={
            "max_perplexity": float(bound) if isinstance(bound, int | float) else 0.0,
            "window": window,
            "stride": stride,
            "max_tokens": target.optional_integer("max_tokens") or 0,
        },
    )


PERPLEXITY_TEST = Rule(
    schema=RuleSchema(
        name="perplexity_test",
        doc="Measures the perplexity of a package on a text, each token given those before it, and asserts an upper "
        "bound. The figure is in test.json, also without a bound." + TAGS,
        attributes=(
            PACKAGE,
            Attribute(
                name="text",
                kind=AttributeKind.LABEL,
                mandatory=True,
                allow_files=True,
                provides=("files",),
                doc="The text, one file in UTF-8.",
            ),
            Attribute(
                name="max_perplexity",
                kind=AttributeKind.NUMBER,
                doc="The test fails above it. Left out: the perplexity is measured, and any passes.",
            ),
            Attribute(
                name="window",
                kind=AttributeKind.INTEGER,
                minimum=2,
                doc="Tokens that are read together; a longer text is read in several windows. Left out: 512, or the "
                "whole context where that is shorter.",
            ),
            Attribute(
                name="stride",
                kind=AttributeKind.INTEGER,
                minimum=1,
                doc="Tokens from the beginning of one window to the next; each window scores those that none before it "
                "has scored. Left out: the window, so that windows do not overlap and the first token of each is not "
                "scored.",
            ),
            Attribute(
                name="max_tokens", kind=AttributeKind.INTEGER, minimum=2, doc="Read only so many tokens of the text."
            ),
            *TEST_ATTRIBUTES,
        ),
        provides=("test",),
    ),
    implementation=implement,
)
