"""Compares two sides action by action: what is equal, what differs and why, and what only one side has."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mlcbuild.cli.diff.pairing import paired
from mlcbuild.cli.diff.side import Side, SideAction
from mlcbuild.cli.explain.explanation import Explanation
from mlcbuild.cli.explain.reasons import only_inputs_differ
from mlcbuild.engine.key_difference import KeyContent, differences

_OF_A_FUNCTION = ("argument", "group", "output", "result")  # what another function takes and makes, is another matter
_FORGOTTEN = "what its key was made of is no longer in the disk cache"
_NOT_KNOWN = "not known: an action that makes its inputs has no result"


class Outcome(enum.Enum):
    """How an action of one side relates to the other side."""

    EQUAL = "equal"  # the keys are
    DIFFERS = "differs"  # in something of its own
    FOLLOWS = "follows"  # it differs in the outputs of other actions alone
    NOT_KNOWN = "not known"  # no own difference, and a side has no key, or does not know what will be announced
    ONLY_BEFORE = "only before"
    ONLY_NOW = "only now"


@dataclass(frozen=True, kw_only=True)
class ComparedAction:
    """`before` and `now` are None if that side has no such action, `has_equal_outputs` is if a result is missing."""

    outcome: Outcome
    before: SideAction | None
    now: SideAction | None
    explanation: Explanation | None = None
    has_equal_outputs: bool | None = None

    @property
    def shown(self) -> SideAction:
        """The action by which people know it: that of now, if there is one."""
        found = self.now or self.before
        assert found is not None
        return found


def compared(before: Side, now: Side) -> list[ComparedAction]:
    """All actions in the order of `now`. Those that only `before` has come behind what they come behind there."""
    pairs = paired(before, now)
    partners = {other.identifier: one for one, other in pairs}
    titles = {each.identifier: each.title for each in now.actions}
    names_now = {one.identifier: other.identifier for one, other in pairs}
    behind: dict[str, list[ComparedAction]] = {}
    last = ""
    for each in before.actions:
        last = names_now.get(each.identifier, last)
        if each.identifier not in names_now:
            alone = ComparedAction(outcome=_alone(each, Outcome.ONLY_BEFORE, now), before=each, now=None)
            behind.setdefault(last, []).append(alone)
    found = behind.pop("", [])
    for each in now.actions:
        partner = partners.get(each.identifier)
        if partner is None:
            found.append(ComparedAction(outcome=_alone(each, Outcome.ONLY_NOW, before), before=None, now=each))
        else:
            found.append(_compared(partner, each, titles))
        found += behind.get(each.identifier, [])
    return found


def _alone(action: SideAction, outcome: Outcome, other: Side) -> Outcome:
    return Outcome.NOT_KNOWN if action.is_announced and other.has_unknown else outcome


def _compared(before: SideAction, now: SideAction, titles: Mapping[str, str]) -> ComparedAction:
    if before.key and before.key == now.key:
        return ComparedAction(outcome=Outcome.EQUAL, before=before, now=now, has_equal_outputs=True)
    both_known = bool(before.key and now.key)
    old, new = before.content(), now.content()
    found = () if old is None or new is None else differences(_renamed(old, before, now), new, with_inputs=both_known)
    if any(each.kind == "function" for each in found):
        found = tuple(each for each in found if each.kind not in _OF_A_FUNCTION)
    why = _FORGOTTEN if old is None or new is None else "" if found else _NOT_KNOWN
    explanation = Explanation(
        identifier=now.identifier,
        title=now.title,
        mnemonic=now.mnemonic,
        owner=now.owner,
        what=Outcome.DIFFERS.value,
        why=why,
        waits_for=now.waits_for or before.waits_for,
        action=now.action,
        differences=found,
        makers=titles,
    )
    outcome = Outcome.DIFFERS
    if not found and why == _NOT_KNOWN:
        outcome = Outcome.NOT_KNOWN
    elif found and _follows(explanation):
        outcome = Outcome.FOLLOWS
    equal = _equal_outputs(before, now) if both_known else None
    if equal and outcome is Outcome.DIFFERS:
        explanation = replace(explanation, what="differs, and makes the same outputs")
    return ComparedAction(outcome=outcome, before=before, now=now, explanation=explanation, has_equal_outputs=equal)


def _follows(explanation: Explanation) -> bool:
    if explanation.action is not None:
        return only_inputs_differ(explanation)
    # A record does not say what makes an input; a source of a target has no maker, and rules lay it out by its name.
    return all(each.kind == "input" for each in explanation.differences)


def _renamed(content: KeyContent, before: SideAction, now: SideAction) -> KeyContent:
    """The content of a kernel's key with the name that the kernel has now, so that names are no differences."""
    if not before.kernel or before.kernel == now.kernel:
        return content
    components = {
        name.replace(before.kernel, now.kernel): value.replace(before.kernel, now.kernel)
        for name, value in content.components.items()
    }
    return replace(content, components=components)


def _equal_outputs(before: SideAction, now: SideAction) -> bool | None:
    old, new = before.outputs(), now.outputs()
    if old is None or new is None:
        return None
    names = [
        (each.path.replace(before.kernel, now.kernel) if before.kernel else each.path, each.digest) for each in old
    ]
    return names == [(each.path, each.digest) for each in new]
