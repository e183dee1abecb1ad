"""Evaluates queries on a loaded workspace."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from mlcbuild.query.expression import CallNode, Node, OperationNode, Operator, PatternNode, Query
from mlcbuild.query.nodes import QueryGraph, QueryNode, SourceFile, sort_key
from mlcbuild.suggestions import did_you_mean
from mlcbuild.workspace.graph import levels, reverse, shortest_path
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.loader import LoadedWorkspace
from mlcbuild.workspace.packages import PackageTree
from mlcbuild.workspace.pattern import PatternKind, parse_pattern
from mlcbuild.workspace.target import Target

_COMMON_ATTRIBUTES = ("name", "tags", "visibility")
Found = Mapping[QueryNode, object]  # an ordered set: its keys


def evaluate(query: Query, graph: QueryGraph, *, current_package: str = "") -> tuple[QueryNode, ...]:
    """The targets and files that a query finds: sorted, or for `somepath` in the order of the path.

    The graph's workspace must be loaded with what `nodes.patterns_to_load` says of the query's `patterns`, and with the
    same `current_package`. Wildcards include targets tagged "manual", and no files. Targets have the attributes of the
    loaded configuration.
    """
    found = _Evaluator(graph, current_package).of(query.root)
    if isinstance(query.root, CallNode) and query.root.function.name == "somepath":
        return tuple(found)
    return tuple(sorted(found, key=sort_key))


def remarks(query: Query, graph: QueryGraph, found: Sequence[QueryNode]) -> tuple[str, ...]:
    """What may be wrong with a query that has an answer: it names attributes that nothing has, or finds nothing."""
    targets = graph.loaded.targets.values()
    known = dict.fromkeys(_COMMON_ATTRIBUTES)
    for target in targets:
        known |= dict.fromkeys((*target.schema.by_name, *target.cell))
    told = []
    for name in dict.fromkeys(_attributes(query.root)):
        if name not in known:
            guess = did_you_mean(name, tuple(known))
            told.append(f'no target here has the attribute "{name}"' + (f": {guess}" if guess else ""))
    return tuple(told) if told or found else ("nothing was found",)


def _attributes(node: object) -> Iterator[str]:
    """The names of attributes that a query asks for."""
    if isinstance(node, CallNode):
        if node.function.name == "attr":
            yield str(node.arguments[0])
        for argument in node.arguments:
            yield from _attributes(argument)
    elif isinstance(node, OperationNode):
        for part in (node.first, *(operand for _, operand in node.steps)):
            yield from _attributes(part)


class _Evaluator:
    """Evaluates nodes against one workspace."""

    def __init__(self, graph: QueryGraph, current_package: str) -> None:
        self._graph = graph
        self._loaded = loaded = graph.loaded
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
        found: dict[QueryNode, None] = dict.fromkeys(self._loaded.select(patterns, with_manual=True))
        for pattern in patterns:
            if pattern.kind is PatternKind.TARGET and pattern.label not in self._loaded.targets:
                found.update(dict.fromkeys(self._graph.files_of(pattern.label.path)))
        return found

    def _deps(self, starts: Found, depth: int | None = None) -> Found:
        return levels(starts, self._graph.dependencies, depth)

    def _rdeps(self, universe: Found, goals: Found, depth: int | None = None) -> Found:
        everything = self._deps(universe)
        needed_by = reverse(everything, self._graph.dependencies)
        return levels((node for node in goals if node in everything), needed_by.__getitem__, depth)

    def _all_paths(self, starts: Found, goals: Found) -> Found:
        forward = self._deps(starts)
        backward = self._rdeps(starts, goals)
        return {node: None for node in forward if node in backward}

    def _some_path(self, starts: Found, goals: Found) -> Found:
        return dict.fromkeys(shortest_path(starts, goals, self._graph.dependencies))

    def _kind(self, regex: re.Pattern[str], candidates: Found) -> Found:
        return {node: None for node in candidates if regex.search(kind_of(node, self._loaded))}

    def _attribute(self, name: str, regex: re.Pattern[str], candidates: Found) -> Found:
        def matches(target: Target) -> bool:
            text = attribute_text(target, name)
            return text is not None and regex.search(text) is not None

        return {
            node: None
            for node in candidates
            if not isinstance(node, SourceFile) and matches(self._loaded.targets[node])
        }

    def _filter(self, regex: re.Pattern[str], candidates: Found) -> Found:
        return {node: None for node in candidates if regex.search(str(node))}


def kind_of(node: QueryNode, loaded: LoadedWorkspace) -> str:
    """`model_library rule`, or `source file`, as in Bazel."""
    return "source file" if isinstance(node, SourceFile) else f"{loaded.targets[node].rule} rule"


def attribute_text(target: Target, name: str) -> str | None:
    """An attribute's value as text for `attr`: lists as `[a, b]`, tables as `{key: value}`, full labels.

    An axis of the target's matrix counts as an attribute. None if the rule does not have the attribute, or it has no
    value.
    """
    if name == "name":
        return target.label.name
    if name == "tags":
        return _text(target.tags)
    if name == "visibility":
        return None if target.visibility is None else _text(target.visibility)
    if name not in target.schema.by_name:
        return _text(target.cell[name]) if name in target.cell else None
    value = target.get(name)
    return None if value is None else _text(value)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Label):
        return str(value)
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
        return {node: None for node in left if node in right}
    return {node: None for node in left if node not in right}
