"""Explanations as values: what happens to an action, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcbuild.engine.action import Action, Artifact, DiscoveredArtifacts, SourceArtifact
from mlcbuild.engine.key_difference import Difference


@dataclass(frozen=True, kw_only=True)
class KernelChange:
    """A discovered action that a manifest announces and the former one did not, or the other way round.

    Titles are "" for a new one and for one that is gone. `functions` are those of the library that use it.
    """

    before: str
    now: str
    functions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why one action would run, or ran.

    `what` is "would run", "waits", "is cached", "has no key", "ran", "failed" or "differs". `why` is a reason without
    parts, such as "the first build here"; it may be empty if there are differences. `action` is None if the workspace
    does not have it any more.
    """

    identifier: str
    title: str
    mnemonic: str
    owner: str
    what: str
    why: str = ""
    waits_for: str = ""
    action: Action | None = None
    differences: tuple[Difference, ...] = ()
    kernels: tuple[KernelChange, ...] = ()
    makers: Mapping[str, str] = field(default_factory=dict)  # the titles of the actions that make its inputs

    def maker_of(self, path: str) -> str:
        """What an input is: the path of a file of the workspace, the action that makes it, or "" if it is not known."""
        found = self._artifact(path)
        if found is None:
            return ""
        rest, artifact = found
        if isinstance(artifact, SourceArtifact):
            return artifact.path + rest
        return f"{artifact.action} ({artifact.group})" if isinstance(artifact, DiscoveredArtifacts) else artifact.action

    def maker_title(self, path: str) -> str:
        """`maker_of`, with the name of an action for people."""
        found, maker = self._artifact(path), self.maker_of(path)
        if found is None or isinstance(found[1], SourceArtifact):
            return maker
        identifier = found[1].action
        return self.makers.get(identifier, identifier) + maker.removeprefix(identifier)

    def source_path(self, path: str) -> str:
        """The path of an input in the workspace; "" if it is the output of an action."""
        found = self._artifact(path)
        return found[1].path if found and isinstance(found[1], SourceArtifact) else ""

    def _artifact(self, path: str) -> tuple[str, Artifact] | None:
        """The artifact that lies at a path or at a folder above it, and the rest of the path."""
        for item in self.action.inputs if self.action else ():
            if item.path == path:
                return "", item.artifact
            if item.path.endswith("/") and path.startswith(item.path):
                return path[len(item.path) :], item.artifact
        return None

    def document(self, diffs: Mapping[str, list[str]]) -> dict[str, Any]:
        """The explanation as JSON. `diffs` are the text diffs of source files, by path."""
        return {
            "action": self.identifier,
            "title": self.title,
            "mnemonic": self.mnemonic,
            "target": self.owner,
            "what": self.what,
            "why": self.why,
            "waits_for": self.waits_for,
            "differences": [self._difference(each, diffs) for each in self.differences],
            "kernels": [
                {"before": each.before, "now": each.now, "functions": list(each.functions)} for each in self.kernels
            ],
        }

    def _difference(self, difference: Difference, diffs: Mapping[str, list[str]]) -> dict[str, Any]:
        document: dict[str, Any] = {
            "kind": difference.kind,
            "name": difference.name,
            "before": difference.before,
            "now": difference.now,
        }
        if difference.kind == "input":
            document["made_by"] = self.maker_of(difference.name)
            document["diff"] = diffs.get(self.source_path(difference.name), [])
        if difference.kind == "parameter":
            document["inside"] = [{"path": path, "before": old, "now": new} for path, old, new in difference.inside]
        if difference.kind == "implementation":
            document["code"] = [
                {"module" if each.is_module else "part": each.where, "definition": each.name, "change": each.kind}
                for each in difference.code
            ]
        return document
