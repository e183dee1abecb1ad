"""The processor of a platform: of a CPU the whole target, of a device the host that loads the library."""

from __future__ import annotations

from mlcbuild.engine.action import JsonValue
from mlcbuild.rules.processors import feature_error, processor_error, triple_error
from mlcbuild.rules.rule import RuleContext
from mlcbuild.system_programs import linker_advice, linker_name
from mlcbuild.workspace.schema import Attribute, AttributeKind

HOST_ATTRIBUTES = (
    Attribute(
        name="cpu",
        kind=AttributeKind.STRING,
        doc="The level or processor as LLVM names it: x86-64-v2, x86-64-v3, x86-64-v4, znver3, cortex-a76 … Of "
        "a GPU's host x86-64-v3 where left out; mandatory for a CPU.",
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
)
# Every server processor that a GPU has been sold with since 2017 has this level.
CPU_OF_A_DEVICE_HOST = {"x86_64": "x86-64-v3"}


def host_target(context: RuleContext, *, default_cpu: dict[str, str] | None = None) -> dict[str, JsonValue]:
    """TVM's target for the host's code, of `HOST_ATTRIBUTES`: `kind` llvm, `mtriple`, `mcpu`, and `mattr` where there
    are features.

    `default_cpu` is the processor by architecture of the triple where a target names none. Nothing of the machine that
    builds gets in. Reports a triple that libraries cannot be made for, a processor that LLVM does not know, and a
    feature of a wrong form. Raises WorkspaceError where there is no processor.
    """
    triple = context.target.string("host")
    if (wrong := triple_error(triple)) is not None:
        raise context.error(wrong[0], attribute="host", advice=wrong[1])
    machine = triple.partition("-")[0]
    if not context.program(linker_name(machine)):
        context.report(
            f'this machine has no linker for the host "{triple}"',
            attribute="host",
            advice=(linker_advice(machine),),
        )
    default = (default_cpu or {}).get(machine, "")
    cpu = context.target.optional_string("cpu") or default
    if not cpu:
        raise context.error("no cpu", attribute="kind", advice=(f"name the processor of {triple}, as LLVM does",))
    if (wrong := processor_error(triple, cpu)) is not None:
        context.report(wrong[0], attribute="cpu", advice=wrong[1])
    target: dict[str, JsonValue] = {"kind": "llvm", "mtriple": triple, "mcpu": cpu}
    if features := context.target.strings("features"):
        for feature in features:
            if (wrong := feature_error(feature)) is not None:
                context.report(wrong[0], attribute="features", advice=wrong[1])
        target["mattr"] = sorted(features)
    return target
