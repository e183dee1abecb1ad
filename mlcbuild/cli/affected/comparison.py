"""Compares the actions and targets of two states of a workspace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from mlcbuild.engine.action import Action, Artifact, SourceArtifact
from mlcbuild.engine.code_listing import CodeListing
from mlcbuild.engine.key_difference import Difference, KeyContent, differences
from mlcbuild.engine.survey import ActionState, Survey, SurveyedAction
from mlcbuild.query.nodes import QueryGraph, SourceFile
from mlcbuild.rules.analysis import AnalysedTarget, Analysis
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.loader import LoadedWorkspace

_NEEDS = "needs "


@dataclass(frozen=True, kw_only=True)
class WorkspaceState:
    """A loaded, analysed and surveyed workspace."""

    loaded: LoadedWorkspace
    analysis: Analysis
    survey: Survey


@dataclass(kw_only=True)
class Comparison:
    """Finds which actions and targets of `now` differ from those of `before`.

    An action whose key is known in both states differs if its key does, so a stage that would make the same bytes again
    ends the effects of a change if both results are cached. Otherwise it differs if something that it declares does, or
    if an action that makes its inputs differs. `is_changed` tells of a source file; `has_changed_code` whether a
    changed file may belong to the code of a stage. Then an action without a result that announces others differs.
    """

    before: WorkspaceState
    now: WorkspaceState
    is_changed: Callable[[str], bool]
    has_changed_code: bool
    _reasons: dict[str, str] = field(default_factory=dict)  # of actions, "" where there is none
    _own: dict[str, list[str]] = field(default_factory=dict)  # the reasons of a target's actions, by its label

    def __post_init__(self) -> None:
        self._graph, self._former_graph = QueryGraph(self.now.loaded), QueryGraph(self.before.loaded)

    def affected(self) -> dict[Label, str]:
        """The affected targets among the requested ones, each with its reason, in the order of the request."""
        self._compare_actions()
        found: dict[Label, str] = {}
        for label, target in self.now.analysis.targets.items():
            if reason := self._reason_of_target(label, target, found):
                found[label] = reason
        requested = [target.label for target in self.now.analysis.requested]
        return {label: found[label] for label in requested if label in found}

    # Actions.

    def _compare_actions(self) -> None:
        # The actions that a manifest announces have the makers of their inputs before them, and so have all others, but
        # for what waits for a group. That is found by the action which announces the group.
        declared = {action.identifier: action for action in self.now.analysis.actions}
        announced = [each.action for name, each in self.now.survey.actions.items() if name not in declared]
        groups: dict[str, list[str]] = {}
        for action in announced:
            groups.setdefault(_announcer(action, declared), []).append(action.identifier)
        for action in (*declared.values(), *announced):
            self._reasons[action.identifier] = self._own_reason(action)
        # Until nothing changes: what needs a differing action differs too, unless its own key is known to be equal.
        pending = True
        while pending:
            pending = False
            for action in (*declared.values(), *announced):
                if self._reasons[action.identifier] or self._has_equal_key(action.identifier):
                    continue
                for maker in self._makers(action, groups):
                    if self._reasons.get(maker):
                        self._reasons[action.identifier] = f"{_NEEDS}{self._title(maker)}"
                        pending = True
                        break
        for action in (*declared.values(), *announced):
            self._own.setdefault(action.owner, []).append(self._reasons[action.identifier])

    def _makers(self, action: Action, groups: Mapping[str, list[str]]) -> Iterator[str]:
        for item in action.inputs:
            if not isinstance(item.artifact, SourceArtifact):
                yield item.artifact.action
                yield from groups.get(item.artifact.action, ())

    def _has_equal_key(self, identifier: str) -> bool:
        here, there = self.now.survey.actions.get(identifier), self.before.survey.actions.get(identifier)
        return here is not None and there is not None and here.key is not None and here.key == there.key

    def _own_reason(self, action: Action) -> str:
        """Why an action differs by what it declares itself; "" if it does not."""
        here = self.now.survey.actions.get(action.identifier)
        there = self.before.survey.actions.get(action.identifier)
        if there is None or here is None:
            return f"{action.title} is new"
        unknown = ""
        if action.discoverer is not None and self.has_changed_code and not (_has_result(here) and _has_result(there)):
            unknown = f"{action.title}: code changed, and the actions that it announces are not known"
        if here.key is not None and there.key is not None:
            if here.key == there.key:
                return unknown
            found = differences(self._content(self.before, there), self._content(self.now, here))
            told = [each for each in found if each.kind != "input"] or list(found)
            return f"{action.title}: {_told(told[0], here.action)}" if told else f"{action.title} has another key"
        found = differences(self._content(self.before, there), self._content(self.now, here), with_inputs=False)
        if found:
            return f"{action.title}: {_told(found[0], here.action)}"
        if here.action.inputs != there.action.inputs:
            return f"{action.title}: its declared inputs changed"
        for item in here.action.inputs:
            if isinstance(item.artifact, SourceArtifact) and self.is_changed(item.artifact.path):
                return f"{action.title}: {item.artifact.path} changed"
        return unknown

    def _content(self, state: WorkspaceState, surveyed: SurveyedAction) -> KeyContent:
        data = state.survey.keys.listing_of(surveyed.action)
        code = CodeListing.decode(data) if data else None
        return KeyContent.of_source(state.survey.keys.source_of(surveyed.action, surveyed.inputs), code)

    # Targets.

    def _reason_of_target(self, label: Label, target: AnalysedTarget, affected: Mapping[Label, str]) -> str:
        former = self.before.analysis.targets.get(label)
        if former is None:
            return "is new"
        own = self._own.get(str(label), ())
        if reasons := [reason for reason in own if reason]:
            return min(reasons, key=lambda reason: reason.startswith(_NEEDS))
        files, former_files = target.provided(FilesInfo), former.provided(FilesInfo)
        if files != former_files:
            return "other outputs"
        for _, artifact in files.files if files else ():
            if reason := self._reason_of_artifact(artifact):
                return reason
        if own or files:
            return ""  # What it needs from others is in the keys of its actions, or among its files.
        if self.now.loaded.targets[label].values != self.before.loaded.targets[label].values:
            return "its attributes changed"
        named, former_named = (_files_named(graph, label) for graph in (self._graph, self._former_graph))
        if changed := min((path for path in named if path not in former_named or self.is_changed(path)), default=""):
            return f"{changed} changed"
        if gone := min(former_named - named, default=""):
            return f"{gone} is gone"
        needed = self.now.loaded.dependencies(label)
        return next((f"needs {each}" for each in needed if each in affected), "")

    def _reason_of_artifact(self, artifact: Artifact) -> str:
        if isinstance(artifact, SourceArtifact):
            return f"{artifact.path} changed" if self.is_changed(artifact.path) else ""
        return f"{_NEEDS}{self._title(artifact.action)}" if self._reasons.get(artifact.action) else ""

    def _title(self, identifier: str) -> str:
        """An action's name for people, where it is known."""
        surveyed = self.now.survey.actions.get(identifier)
        return surveyed.action.title if surveyed else identifier


def _files_named(graph: QueryGraph, label: Label) -> frozenset[str]:
    return frozenset(node.path for node in graph.dependencies(label) if isinstance(node, SourceFile))


def _has_result(surveyed: SurveyedAction) -> bool:
    return surveyed.state in (ActionState.UP_TO_DATE, ActionState.CACHED)


def _announcer(action: Action, declared: Mapping[str, Action]) -> str:
    """The declared action that an announced one was announced by: the discovering one that makes an input of it, or of
    the announced actions before it, which has the same owner."""
    for item in action.inputs:
        if not isinstance(item.artifact, SourceArtifact) and item.artifact.action in declared:
            maker = declared[item.artifact.action]
            if maker.discoverer is not None:
                return maker.identifier
    return next(
        (each.identifier for each in declared.values() if each.discoverer is not None and each.owner == action.owner),
        "",
    )


def _told(difference: Difference, action: Action) -> str:
    match difference.kind:
        case "input":
            for item in action.inputs:
                if isinstance(item.artifact, SourceArtifact) and item.path == difference.name:
                    return f"{item.artifact.path} changed"
            return f"{difference.name} changed"
        case "implementation":
            return str(difference.code[0]) if difference.code else "its code changed"
        case "parameter" if difference.inside:
            place, old, new = difference.inside[0]
            return f"{place}: {old or 'none'} → {new or 'none'}"
        case kind:
            return f"{kind} {difference.name} changed".replace("  ", " ")
