"""`answer_test`: a package answers a prompt as expected."""

from __future__ import annotations

import re

from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.rules.tested import PACKAGE, TAGS, TEST_ATTRIBUTES, declare_package_test
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    target = context.target
    expected, match = target.string("expected"), target.string("match")
    if match == "regex":
        try:
            re.compile(expected)
        except re.error as error:
            context.report(f"expected is no regular expression: {error}", attribute="expected")
    if target.boolean("raw") and target.optional_string("system"):
        context.report("a system message needs the chat template, and raw leaves that out", attribute="system")
    return declare_package_test(
        context,
        "AnswerTest",
        "mlcbuild.compiler.stages.answer_test:run",
        inputs={},
        parameters={
            "prompt": target.string("prompt"),
            "system": target.optional_string("system") or "",
            "raw": target.boolean("raw"),
            "expected": expected,
            "match": match,
            "max_tokens": target.integer("max_tokens"),
        },
    )


ANSWER_TEST = Rule(
    schema=RuleSchema(
        name="answer_test",
        doc="Gives a package a prompt and compares its answer, choosing the likeliest token each time, with the "
        "expected one." + TAGS,
        attributes=(
            PACKAGE,
            Attribute(name="prompt", kind=AttributeKind.STRING, mandatory=True, doc="What the model is asked."),
            Attribute(
                name="expected", kind=AttributeKind.STRING, mandatory=True, nonempty=True, doc="What it must answer."
            ),
            Attribute(
                name="match",
                kind=AttributeKind.CHOICE,
                allowed=("exact", "prefix", "contains", "regex"),
                default="exact",
                doc="How the answer is compared: it is the expected text, begins with it, contains it, or has a match "
                "of it as a regular expression of Python's.",
            ),
            Attribute(name="system", kind=AttributeKind.STRING, doc="A system message before the prompt."),
            Attribute(
                name="raw",
                kind=AttributeKind.BOOLEAN,
                doc="Go on from the prompt as a text, without the chat template. A template that asks for the date is "
                "told 26 July 2024.",
            ),
            Attribute(
                name="max_tokens",
                kind=AttributeKind.INTEGER,
                minimum=1,
                default=64,
                doc="The most tokens of an answer.",
            ),
            *TEST_ATTRIBUTES,
        ),
        provides=("test",),
    ),
    implementation=implement,
)
