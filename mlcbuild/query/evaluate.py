"""Evaluates queries on a loaded workspace."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from mlcbuild.query.expression import CallNode, Node, OperationNode, Operator, PatternNode, Query
from mlcbuild.workspace.graph import levels, reverse, shortest_path
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.loader import LoadedWorkspace
from mlcbuild.workspace.packages import PackageTree
from mlcbuild.workspace.pattern import parse_pattern
from mlcbuild.workspace.target import Target

Found = Mapping[Label, object]  # an ordered set: its keys


def evaluate(query: Query, loaded: LoadedWorkspace, *, current_package: str = "") -> tuple[Label, ...]:
    """The labels that a query finds: sorted, or for `somepath` in the order of the path.

    `loaded` must be loaded with the query's `patterns` and the same `current_package`. Wildcards include targets tagged
    "manual". Targets have the attributes of the loaded configuration. Files are never found.
    """
    found = _Evaluator(loaded, current_package).of(query.root)
    if isinstance(query.root, CallNode) and query.root.function.name == "somepath":
        return tuple(found)
    return tuple(sorted(found, key=lambda label: label.key))


class _Evaluator:
    """Evaluates nodes against one workspace."""

    def __init__(self, loaded: LoadedWorkspace, current_package: str) -> None:
        self._loaded = loaded
        self._current_package = current_package
        self._tree = PackageTree(loaded.settings.root, ignored=loaded.settings.ignored_folders)
        self._functions: Mapping[str, Callable[..., Found]] = {
            "deps": self._deps,
            "rdeps": self._rdeps,
            "allpaths": self._all_paths,
            "somepath": self._some_path,
            "kind": self._kind,
            "attr": self._attribute,
            "filter": self._filter,
        }

    def of(self, node: Node) -> Found:
        if isinstance(node, PatternNode):
            return self._patterns(node.patterns)
        if isinstance(node, OperationNode):
            found = self.of(node.first)
            for operator, operand in node.steps:
                found = _combine(operator, found, self.of(operand))
            return found
        arguments = [
            self.of(argument) if isinstance(argument, PatternNode | OperationNode | CallNode) else argument
            for argument in node.arguments
        ]
        return self._functions[node.function.name](*arguments)

    def _patterns(self, texts: Sequence[str]) -> Found:
        patterns = [
            parse_pattern(text, package=self._current_package, is_package=self._tree.is_package) for text in texts
        ]
        return dict.fromkeys(self._loaded.select(patterns, with_manual=True))

    def _deps(self, starts: Found, depth: int | None = None) -> Found:
        return levels(starts, self._loaded.dependencies, depth)

    def _rdeps(self, universe: Found, goals: Found, depth: int | None = None) -> Found:
        everything = self._deps(universe)
        needed_by = reverse(everything, self._loaded.dependencies)
        return levels((label for label in goals if label in everything), needed_by.__getitem__, depth)

    def _all_paths(self, starts: Found, goals: Found) -> Found:
        forward = self._deps(starts)
        backward = self._rdeps(starts, goals)
        return {label: None for label in forward if label in backward}

    def _some_path(self, starts: Found, goals: Found) -> Found:
        return dict.fromkeys(shortest_path(starts, goals, self._loaded.dependencies))

    def _kind(self, regex: re.Pattern[str], candidates: Found) -> Found:
        return self._where(candidates, lambda target: regex.search(f"{target.rule} rule") is not None)

    def _attribute(self, name: str, regex: re.Pattern[str], candidates: Found) -> Found:
        def matches(target: Target) -> bool:
            text = attribute_text(target, name)
            return text is not None and regex.search(text) is not None

        return self._where(candidates, matches)

    def _filter(self, regex: re.Pattern[str], candidates: Found) -> Found:
        return self._where(candidates, lambda target: regex.search(str(target.label)) is not None)

    def _where(self, candidates: Found, matches: Callable[[Target], bool]) -> Found:
        return {label: None for label in candidates if matches(self._loaded.targets[label])}


def attribute_text(target: Target, name: str) -> str | None:
    """An attribute's value as text for `attr`: lists as `[a, b]`, tables as `{key: value}`, full labels.

    None if the rule does not have the attribute, or it has no value.
    """
    if name == "name":
        return target.label.name
    if name == "tags":
        return _text(target.tags)
    if name == "visibility":
        return None if target.visibility is None else _text(target.visibility)
    if name not in target.schema.by_name:
        return None
    value = target.get(name)
    return None if value is None else _text(value)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_text(item) for item in value)}]"
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        return "{" + ", ".join(f"{key}: {_text(item)}" for key, item in members.items()) + "}"
    return str(value)


def _combine(operator: Operator, left: Found, right: Found) -> Found:
    if operator is Operator.UNION:
        return {**left, **right}
    if operator is Operator.INTERSECT:
        return {label: None for label in left if label in right}
    return {label: None for label in left if label not in right}
