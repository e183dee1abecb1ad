"""The names of actions as people read them: the title, and which targets share the action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlcbuild.cli.output import text
from mlcbuild.engine.build_events import ActionFinished, ActionStarted, PathStep
from mlcbuild.engine.shared_actions import shared_with


def title(action: ActionStarted | ActionFinished | PathStep) -> str:
    """`//models:smollm2 Export`, `//models:smollm2 CompileKernel rms_norm n×576 (3853bded)`."""
    return action.title or action.identifier


def full_title(action: ActionStarted | ActionFinished) -> str:
    """The title and the other targets that share the action: `//models:a Export (shared with //models:b)`."""
    return _shared(title(action), action.identifier, action.shared_by)


def why_failed(action: ActionFinished) -> str:
    """The message of a failure without the action's name, which an executor may have put before it."""
    return text.printable(action.message.strip().removeprefix(title(action)).lstrip(": "))


def recorded_title(action: Mapping[str, Any]) -> str:
    """The title of an action or a step in a recorded build. Records of older builds have identifiers alone."""
    found: str = action.get("title") or action["identifier"]
    return found


def full_recorded_title(action: Mapping[str, Any]) -> str:
    """`full_title` of an action in a recorded build."""
    return _shared(recorded_title(action), action["identifier"], action.get("shared_by", ()))


def without_label(name: str) -> str:
    """A title or identifier without its target: `Export` for `//models:smollm2 Export`."""
    label, _, rest = name.partition(" ")
    return rest if rest and label.startswith("//") else name


def _shared(shown: str, identifier: str, shared_by: Sequence[str]) -> str:
    own, *others = (name.partition(" ")[0] for name in (identifier, *shared_by))
    return shown + shared_with(label for label in dict.fromkeys(others) if label != own)
