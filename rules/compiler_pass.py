"""`compiler_pass`: a pass of the workspace's own, at a named place of the compile pipeline."""

from __future__ import annotations

from mlcbuild.rules.passes import CompilerPassInfo, place_problem
from mlcbuild.rules.rule import Providers, Rule, RuleContext, is_named_object
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    target = context.target
    function = target.string("function")
    if not is_named_object(function):
        raise context.error(
            f'"{function}" is no function',
            attribute="function",
            advice=("write package.module:function; run of passes/narrow.py is passes.narrow:run",),
        )
    context.check_module(function.partition(":")[0], attribute="function")
    places = {name: target.string(name) for name in ("after", "before") if target.has(name)}
    if len(places) != 1:
        given = "both after and before" if places else "neither after nor before"
        raise context.error(f"{given}", attribute="name", advice=("name one pass that it runs after or before",))
    for attribute, place in places.items():
        if (problem := place_problem(place)) is not None:
            raise context.error(problem[0], attribute=attribute, advice=problem[1])
    return (CompilerPassInfo(function=function, **places),)


COMPILER_PASS = Rule(
    schema=RuleSchema(
        name="compiler_pass",
        doc="A pass of the workspace's own, which libraries name in `passes`. `mlcbuild help passes` has an example.",
        attributes=(
            Attribute(
                name="function",
                kind=AttributeKind.STRING,
                mandatory=True,
                doc="The function, `package.module:name`; its module is named by its path from the root. It is called "
                "with a module and the context of its phase, and returns a module.",
            ),
            Attribute(
                name="after",
                kind=AttributeKind.STRING,
                doc="The pass of the pipeline that it runs right after, by name.",
            ),
            Attribute(
                name="before",
                kind=AttributeKind.STRING,
                doc="The pass that it runs right before. Either this or `after` is given.",
            ),
        ),
        provides=("compiler_pass",),
    ),
    implementation=implement,
)
