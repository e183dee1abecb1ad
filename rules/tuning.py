"""What the attribute `tuning` asks for: whether measurements choose the shapes of kernels.

A rule sees measurements as values, as they lay in the disk cache when the workspace was analysed. They reach
ScheduleKernel of the kernels that they concern, as a parameter, and no other action.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mlcbuild.rules.backend import PlatformInfo
from mlcbuild.rules.rule import RuleContext
from mlcbuild.tuning.choice import Choice
from mlcbuild.tuning.record import platform_key
from mlcbuild.workspace.schema import Attribute, AttributeKind

OFF, CACHED = "off", "cached"
_TRIALS = re.compile(r"([1-9][0-9]{0,5}) trials?")

TUNING = Attribute(
    name="tuning",
    kind=AttributeKind.STRING,
    default=OFF,
    doc='Whether measurements choose the shapes of kernels. "off": each kernel has its default shape. "cached": the '
    'best that the disk cache has records of; a build measures nothing. "100 trials": as cached, and `mlcbuild tune` '
    "measures so many candidates of the target, unless its option says otherwise.",
)


def trials_of(tuning: str) -> int:
    """How many candidates a value of the attribute lets `mlcbuild tune` measure; 0 where it names no number.

    Raises ValueError for what is no value of it.
    """
    if tuning in (OFF, CACHED):
        return 0
    found = _TRIALS.fullmatch(tuning)
    if found is None:
        raise ValueError(f'"{tuning}" is no tuning')
    return int(found[1])


def chosen_shapes(context: RuleContext, platform: PlatformInfo) -> Mapping[str, Choice]:
    """The shapes that records choose for kernels of a target with TUNING. Raises WorkspaceError."""
    tuning = context.target.string("tuning")
    try:
        trials_of(tuning)
    except ValueError as error:
        raise context.error(
            str(error), attribute="tuning", advice=(f'write "{OFF}", "{CACHED}" or a number: "100 trials"',)
        ) from None
    return {} if tuning == OFF else context.choices(platform_key(platform.tuned_for))
