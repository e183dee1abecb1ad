"""Actions of one key are one action to whoever waits for it: how that is told where one of them is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mlcbuild.engine.nodes import ActionNode
from mlcbuild.figures import shortened_list

_MOST_NAMED = 2


def owners_that_share(node: ActionNode, actions: Mapping[str, ActionNode]) -> list[str]:
    """The owners of the actions that ended with `node`, without its own."""
    leader = actions.get(node.shared_with, node)
    owners = dict.fromkeys(actions[name].action.owner for name in (leader.name, *leader.shared_by))
    return [owner for owner in owners if owner != node.action.owner]


def shared_with(owners: Iterable[str]) -> str:
    """` (shared with //:b)`, ` (shared with //:b, //:c and 3 more)`: to stand behind an action; "" for no owners."""
    named = sorted(owners)
    if not named:
        return ""
    return f" (shared with {shortened_list(named, _MOST_NAMED)})"
