"""What an action needs to run, as a target says it: an attribute for rules, and its value."""

from __future__ import annotations

from typing import cast

from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.workspace.schema import Attribute, AttributeKind
from mlcbuild.workspace.target import Target

REQUIREMENTS = Attribute(
    name="requirements",
    kind=AttributeKind.TABLE,
    fields=(
        Attribute(name="cpus", kind=AttributeKind.INTEGER, minimum=1, doc="How many processors it keeps busy."),
        Attribute(
            name="memory",
            kind=AttributeKind.SIZE,
            doc="The most memory that it may hold: stopped and run again with more where it holds more.",
        ),
        Attribute(name="gpus", kind=AttributeKind.NUMBER, minimum=0, doc="GPUs; a fraction shares one with others."),
        Attribute(name="timeout", kind=AttributeKind.DURATION, doc="How long it may run."),
        Attribute(
            name="labels",
            kind=AttributeKind.STRING_MAP,
            doc='What the machine must say of itself, such as arch = "sm_90".',
        ),
    ),
    doc="What the action needs to run. It is not part of the action's key.",
)


_NONE = ExecutionRequirements()


def requirements_of(target: Target) -> ExecutionRequirements:
    """What a target says in `requirements`; what it leaves out is as ever."""
    said = target.table(REQUIREMENTS.name)
    if not said:
        return _NONE
    return ExecutionRequirements(
        cpus=cast(int, said.get("cpus", 1)),
        memory_bytes=cast(int, said.get("memory", 0)),
        gpus=cast(float, said.get("gpus", 0.0)),
        timeout_seconds=cast(float, said.get("timeout", 0.0)),
        labels=tuple(sorted(cast("dict[str, str]", said.get("labels", {})).items())),
    )
