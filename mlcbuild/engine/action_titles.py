"""The names that people know actions by, in messages that name them as programs do.

Executors know an action by its identifier, in which a kernel has the name of its content.
"""

from __future__ import annotations

import re

from mlcbuild.engine.action import Action


def with_title(message: str, action: Action, *, shared_with: str = "") -> str:
    """The message with the action's title in place of its identifier, and of that of the equal action that ran."""
    named = {action.identifier, shared_with} - {"", action.title}
    if not message or not named:
        return message
    longest_first = "|".join(re.escape(name) for name in sorted(named, key=len, reverse=True))
    return re.sub(rf"(?<![\w/-])(?:{longest_first})(?![\w-])", lambda _: action.title, message)
