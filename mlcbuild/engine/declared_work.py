"""The work of targets as far as their declarations tell: which actions are equal, without a key or a cache.

An action's name here is a digest of what it declares and of the names of the actions that make its inputs. A small JSON
file of the workspace, such as a config.json, counts by content, any other source by its path. Actions of one name have
one key. Actions of different names may have one as well, if different actions make equal bytes. No name depends on the
machine, its caches or its history.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mlcbuild.engine.action import Action, Artifact, DerivedArtifact, SourceArtifact
from mlcbuild.engine.shards import Work

# Of what actions announce, the shares that those of equal sources, and all of an equal discoverer, have in common:
# about what `benchmarks.shards` measures for kernels of one model, and of one platform.
SHARE_OF_SOURCES = 0.15
SHARE_OF_DISCOVERER = 0.15
_LARGEST_CONTENT = 1 << 16

SecondsOfKind = Callable[[Action], float]


def declared_work(
    targets: Mapping[str, Iterable[Artifact]],
    actions: Iterable[Action],
    *,
    root: Path,
    seconds_of: SecondsOfKind,
    announced_seconds_of: SecondsOfKind,
) -> Work:
    """The work of targets, each with the artifacts that it wants.

    `announced_seconds_of` are the seconds of all actions together that an action with a discoverer will announce. They
    are not known yet. Equal announcing actions have all of them in common. Those with the same discoverer have some in
    common, and more if they stem from the same sources as well: kernels of one platform, and of one model for it.
    """
    known = {action.identifier: action for action in actions}
    names = _Names(known, root)
    seconds: dict[str, float] = {}
    needs: dict[str, frozenset[str]] = {}
    for label, artifacts in targets.items():
        needed: set[str] = set()
        for action in _closure(artifacts, known):
            name = names.of(action)
            seconds[name] = seconds_of(action)
            needed.add(name)
            if action.discoverer is not None:
                for announced, share in names.of_announced(action):
                    seconds[announced] = share * announced_seconds_of(action)
                    needed.add(announced)
        needs[label] = frozenset(needed)
    return Work(needs=needs, seconds=seconds)


def _closure_of(action: Action, known: Mapping[str, Action]) -> list[Action]:
    """An action, and the declared actions behind it."""
    return [action, *_closure((item.artifact for item in action.inputs), known)]


def _closure(artifacts: Iterable[Artifact], known: Mapping[str, Action]) -> list[Action]:
    """The declared actions behind artifacts, each once."""
    found: dict[str, Action] = {}
    pending = list(artifacts)
    while pending:
        artifact = pending.pop()
        if isinstance(artifact, SourceArtifact) or artifact.action in found or artifact.action not in known:
            continue
        action = found[artifact.action] = known[artifact.action]
        pending += [item.artifact for item in action.inputs]
    return list(found.values())


class _Names:
    """The names of actions; each is computed once."""

    def __init__(self, actions: Mapping[str, Action], root: Path) -> None:
        self._actions = actions
        self._root = root
        self._names: dict[str, str] = {}
        self._sources: dict[str, str] = {}

    def of(self, action: Action) -> str:
        pending, entered = [action], set[str]()
        while pending:
            current = pending[-1]
            makers = [self._maker(item.artifact) for item in current.inputs]
            unnamed = [maker for maker in makers if maker is not None and maker.identifier not in self._names]
            # On a cycle, of which a build will tell, an action is entered again.
            if unnamed and current.identifier not in entered:
                entered.add(current.identifier)
                pending += unnamed
                continue
            self._names.setdefault(current.identifier, self._digest(current))
            pending.pop()
        return self._names[action.identifier]

    def of_announced(self, action: Action) -> tuple[tuple[str, float], ...]:
        """The actions that one will announce, as parts with their shares of all.

        The discoverer knows what its actions will be; of its owner they only have identifiers.
        """
        discoverer = repr(action.discoverer).replace(action.owner, "")
        kind = (action.mnemonic, discoverer)
        return (
            (f"announced by {_hashed((self.of(action), kind))}", 1 - SHARE_OF_SOURCES - SHARE_OF_DISCOVERER),
            (f"announced from {_hashed((self._sources_of(action), kind))}", SHARE_OF_SOURCES),
            (f"announced as {_hashed(kind)}", SHARE_OF_DISCOVERER),
        )

    def _sources_of(self, action: Action) -> list[str]:
        """What an action stems from."""
        artifacts = (item.artifact for each in _closure_of(action, self._actions) for item in each.inputs)
        return sorted({self._source_of(each.path) for each in artifacts if isinstance(each, SourceArtifact)})

    def _maker(self, artifact: Artifact) -> Action | None:
        return None if isinstance(artifact, SourceArtifact) else self._actions.get(artifact.action)

    def _digest(self, action: Action) -> str:
        if action.pinned_content:
            return f"{action.mnemonic} {action.pinned_content}"
        inputs = [(item.path, self._input(item.artifact)) for item in action.inputs]
        declared = (repr(action.command), action.outputs, action.environment, action.toolchains, action.salt, inputs)
        return f"{action.mnemonic} {_hashed(declared)}"

    def _input(self, artifact: Artifact) -> tuple[str, str]:
        if isinstance(artifact, SourceArtifact):
            return ("", self._source_of(artifact.path))
        part = artifact.path if isinstance(artifact, DerivedArtifact) else artifact.group
        return (self._names.get(artifact.action, artifact.action), part)

    def _source_of(self, path: str) -> str:
        if path not in self._sources:
            self._sources[path] = self._read(path)
        return self._sources[path]

    def _read(self, path: str) -> str:
        file = self._root / path
        try:
            if path.endswith(".json") and file.is_file() and file.stat().st_size <= _LARGEST_CONTENT:
                return hashlib.sha256(file.read_bytes()).hexdigest()
        except OSError:
            pass  # A build will tell of it.
        return path


def _hashed(value: object) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()[:32]
