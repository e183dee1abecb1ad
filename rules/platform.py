"""`platform`: what a library runs on."""

from __future__ import annotations

from mlcbuild.engine.action import JsonValue
from mlcbuild.rules.providers import PlatformInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

KINDS = ("cpu",)


def implement(context: RuleContext) -> Providers:
    """TVM's target: `kind` llvm, `mtriple`, `mcpu`, and `mattr` where there is any. Nothing of this host gets in."""
    target: dict[str, JsonValue] = {
        "kind": "llvm",
        "mtriple": context.target.string("host"),
        "mcpu": context.target.string("cpu"),
    }
    if features := context.target.strings("features"):
        target["mattr"] = sorted(features)
    return (PlatformInfo(kind=context.target.string("kind"), target=target),)


PLATFORM = Rule(
    schema=RuleSchema(
        name="platform",
        doc="What a library runs on. It says nothing of the machine that builds.",
        attributes=(
            Attribute(
                name="kind",
                kind=AttributeKind.CHOICE,
                allowed=KINDS,
                mandatory=True,
                doc="The kind of processor.",
            ),
            Attribute(
                name="cpu",
                kind=AttributeKind.STRING,
                mandatory=True,
                doc="The level or processor as LLVM names it: x86-64-v2, x86-64-v3, x86-64-v4, znver3, cortex-a76 …",
            ),
            Attribute(
                name="features",
                kind=AttributeKind.STRING_LIST,
                doc="Features to add or take away: +avx512vnni, -fma …",
            ),
            Attribute(
                name="host",
                kind=AttributeKind.STRING,
                default="x86_64-linux-gnu",
                doc="The triple of the code: architecture, system, environment.",
            ),
        ),
        provides=("platform",),
    ),
    implementation=implement,
)
