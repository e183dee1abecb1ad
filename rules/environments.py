"""What rules whose actions run in a Python environment share: what the environment provides, and such an action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlcbuild.engine.action import Action, CachePolicy, DerivedArtifact, ExecutionRequirements, JsonValue
from mlcbuild.rules.providers import Provider
from mlcbuild.rules.rule import RuleContext, StageInput
from mlcbuild.workspace.schema import Attribute, AttributeKind

ENVIRONMENT = Attribute(
    name="environment",
    kind=AttributeKind.LABEL,
    mandatory=True,
    provides=("environment",),
    doc="The python_environment with the compiler.",
)
_TAKEN = frozenset(["environment", "program"])  # what the stage itself takes by these names


@dataclass(frozen=True, kw_only=True)
class EnvironmentInfo(Provider):
    """An environment: its folder, and the versions that its lock names, by normalized name."""

    name: ClassVar[str] = "environment"
    noun: ClassVar[str] = "python_environment"

    folder: DerivedArtifact
    versions: tuple[tuple[str, str], ...]


def environment_with(context: RuleContext, *distributions: str) -> EnvironmentInfo:
    """The environment that the attribute `environment` names. Reports those of these distributions that it lacks."""
    found = context.required(ENVIRONMENT.name, EnvironmentInfo)
    names = {name for name, _ in found.versions}
    if missing := [name for name in distributions if name not in names]:
        context.report(
            f"{context.target.label_of(ENVIRONMENT.name)} has no {' and no '.join(missing)}",
            attribute=ENVIRONMENT.name,
            advice=("add it to the environment's lock",),
        )
    return found


def environment_stage(
    context: RuleContext,
    mnemonic: str,
    program: str,
    *,
    environment: EnvironmentInfo,
    inputs: Mapping[str, StageInput | Sequence[StageInput]],
    outputs: Mapping[str, str],
    parameters: Mapping[str, JsonValue] | None = None,
    toolchains: Sequence[str] = (),
    requirements: ExecutionRequirements | None = None,
    cache: CachePolicy = CachePolicy.ALL,
) -> Action:
    """Declare an action that runs a program in an environment. `program` is `package.module:function`, and is called
    as a stage is, with these arguments and no others. The environment counts in the key by the content of its files.
    """
    if taken := sorted(_TAKEN.intersection({*inputs, *outputs, *(parameters or {})})):
        raise context.error(f"{mnemonic} gives its program an argument {taken[0]}, which is the environment's own")
    return context.stage(
        mnemonic,
        "mlcbuild.compiler.stages.run_in_environment:run",
        inputs={**inputs, "environment": environment.folder},
        outputs=outputs,
        parameters=parameters or {},
        plugins={"program": program},
        toolchains=("python", *toolchains),
        requirements=requirements,
        cache=cache,
    )
