"""The processor of compilers that compile for the machine they run on, as an attribute and as a toolchain."""

from __future__ import annotations

from mlcbuild.rules.rule import RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind

PROCESSOR = Attribute(
    name="processor",
    kind=AttributeKind.CHOICE,
    allowed=("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"),
    doc="The level of the processors that run the result. The compiler looks at its own processor, so the machine that "
    "builds must have the same level. Left out: that of the machine that builds, whichever it is.",
)


def processor_toolchain(context: RuleContext) -> tuple[str, ...]:
    """What the action declares: the level counts in its key, or all that the machine has where none is named."""
    return (f"processor:{context.target.optional_string(PROCESSOR.name) or 'here'}",)
