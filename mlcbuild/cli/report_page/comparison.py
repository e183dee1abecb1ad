"""Compares a build with an earlier one, action by action."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mlcbuild.cli.report_page.build import PageAction, PageBuild


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`former` has the earlier form of each action by the identifier that it has now; `gone` have no form now."""

    earlier: PageBuild
    former: Mapping[str, PageAction]
    gone: tuple[PageAction, ...]


def compare(now: PageBuild, earlier: PageBuild) -> Comparison:
    """Match the actions of two builds: by identifier, and discovered ones also by what they do.

    A changed kernel has another identifier, which contains its content. If just one action of each build is left that
    does the same for the same target, these are two forms of one action.
    """
    before = {action.identifier: action for action in earlier.actions}
    present = {action.identifier for action in now.actions}
    former = {name: before[name] for name in present & before.keys()}
    left = _by_purpose(action for name, action in before.items() if name not in present)
    for purpose, actions in _by_purpose(action for action in now.actions if action.identifier not in former).items():
        if len(actions) == 1 and len(left.get(purpose, ())) == 1:
            former[actions[0].identifier] = left[purpose][0]
    matched = {action.identifier for action in former.values()}
    gone = tuple(action for action in earlier.actions if action.identifier not in matched)
    return Comparison(earlier=earlier, former=former, gone=gone)


def _by_purpose(actions: Iterable[PageAction]) -> dict[str, list[PageAction]]:
    """Discovered actions by what they do, whatever their content."""
    found: dict[str, list[PageAction]] = {}
    for action in actions:
        described = {name: value for name, value in action.details.items() if name != "kernel"}
        if described:
            purpose = json.dumps([action.owner, action.mnemonic, described], sort_keys=True)
            found.setdefault(purpose, []).append(action)
    return found
