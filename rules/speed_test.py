"""`speed_test`: a package reads and writes as many tokens a second as it should."""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.engine.action import CachePolicy
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.rules.tested import PACKAGE, TEST_ATTRIBUTES, cache_policy, declare_package_test, run_requirements
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    target = context.target
    floors = {name: float(target.number(name)) if target.has(name) else 0.0 for name in _FLOORS}
    if not any(floors.values()):
        raise context.error("no floor", advice=(f"give {' or '.join(_FLOORS)}, in tokens a second",))
    for name, floor in floors.items():
        if target.has(name) and floor <= 0:
            context.report(f"{name} is above 0", attribute=name)
    return declare_package_test(
        context,
        "SpeedTest",
        "mlcbuild.compiler.stages.speed_test:run",
        inputs={},
        parameters={
            "prefill_tokens": target.integer("prefill_tokens"),
            "decode_tokens": target.integer("decode_tokens"),
            "min_prefill": floors["min_prefill_tokens_per_second"],
            "min_decode": floors["min_decode_tokens_per_second"],
            "runs": target.integer("runs"),
            "threads": target.integer("threads"),
        },
        # A speed is true of the machine that it was measured on.
        cache=cache_policy(context, default=CachePolicy.LOCAL),
        requirements=replace(run_requirements(context, alone=True), execution_hints=()),
    )


_FLOORS = ("min_prefill_tokens_per_second", "min_decode_tokens_per_second")

SPEED_TEST = Rule(
    schema=RuleSchema(
        name="speed_test",
        doc="Measures how fast a package reads a prompt and writes tokens, and asserts floors. It runs alone, on the "
        "machine that asks, and its result is never taken from another machine or sent to one.",
        attributes=(
            PACKAGE,
            Attribute(
                name="min_prefill_tokens_per_second",
                kind=AttributeKind.NUMBER,
                doc="How fast it must read a prompt.",
            ),
            Attribute(
                name="min_decode_tokens_per_second",
                kind=AttributeKind.NUMBER,
                doc="How fast it must write, one token after the other.",
            ),
            Attribute(
                name="prefill_tokens",
                kind=AttributeKind.INTEGER,
                minimum=1,
                default=128,
                doc="The length of the prompt, in tokens.",
            ),
            Attribute(
                name="decode_tokens", kind=AttributeKind.INTEGER, minimum=1, default=32, doc="The tokens after it."
            ),
            Attribute(
                name="runs",
                kind=AttributeKind.INTEGER,
                minimum=1,
                default=3,
                doc="How often it is measured; the fastest counts. A run before them does not.",
            ),
            Attribute(
                name="threads",
                kind=AttributeKind.INTEGER,
                minimum=0,
                default=0,
                doc="Threads of a library for CPUs. 0: one for each core of the machine.",
            ),
            *TEST_ATTRIBUTES,
        ),
        provides=("test",),
    ),
    implementation=implement,
)
