"""Two builds of the same targets, action by action: the first whose key or whose output the other has different."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.engine.action_results import outputs_of
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.keys import read_key
from mlcbuild.execution.differences import first_difference

_SUCCESSES = ("executed_local", "disk_hit", "up_to_date")


@dataclass(frozen=True, kw_only=True)
class Made:
    """What an action of a build made, by path from its directory, and the key that it was kept under."""

    key: Digest
    outputs: Mapping[str, FileEntry]


@dataclass(frozen=True, kw_only=True)
class BuiltActions:
    """All actions of a build by identifier, in the order of their ends: who makes a file comes before who reads it."""

    actions: Mapping[str, Made]
    store: DiskStore

    @classmethod
    def read(cls, events: Path, cache: Path) -> BuiltActions:
        """From a build's event log, and the disk cache that it filled."""
        store = DiskStore(cache, DigestFunction.BLAKE3)
        actions: dict[str, Made] = {}
        for line in events.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["event"] != "action_finished":
                continue
            assert event["status"] in _SUCCESSES, line
            key = Digest(event["key"], 0)
            result = store.get(key)
            assert result is not None, f"no result is kept of {event['identifier']}"
            actions[event["identifier"]] = Made(
                key=key, outputs={entry.path: entry for entry in outputs_of(result, store)}
            )
        return cls(actions=actions, store=store)

    def components(self, identifier: str) -> dict[str, str]:
        """What an action's key is made of, by name."""
        key = self.actions[identifier].key
        # A key is read by the action's own bytes, whose count its name does not tell.
        size = self.store.root.joinpath("v1", "blake3", "cas", key.hash[:2], key.hash).stat().st_size
        stored = read_key(self.store, self.store, Digest(key.hash, size))
        assert stored is not None, f"the key of {identifier} cannot be read"
        return dict(stored.breakdown)


def first_other_output(one: BuiltActions, other: BuiltActions) -> str:
    """The first action that made other files, which file, and where its contents part; "" where all are equal."""
    return _first(one, other, _other_output)


def first_other_key(one: BuiltActions, other: BuiltActions) -> str:
    """The first action that has another key, and the component that makes it so; "" where all are equal."""
    return _first(one, other, _other_key)


def _first(one: BuiltActions, other: BuiltActions, differ: Callable[[str, BuiltActions, BuiltActions], str]) -> str:
    for identifier in one.actions:
        if identifier not in other.actions:
            return f"{identifier}: only the first build has this action"
        if difference := differ(identifier, one, other):
            return f"{identifier}: {difference}"
    more = [identifier for identifier in other.actions if identifier not in one.actions]
    return f"{more[0]}: only the second build has this action" if more else ""


def _other_output(identifier: str, one: BuiltActions, other: BuiltActions) -> str:
    first, second = one.actions[identifier].outputs, other.actions[identifier].outputs
    for path in sorted(first.keys() | second.keys()):
        if path not in first or path not in second:
            return f"{path}, which only the {'first' if path in first else 'second'} made"
        if first[path].digest != second[path].digest:
            return (
                f"{path}, {first_difference(one.store.read(first[path].digest), other.store.read(second[path].digest))}"
            )
        if first[path].is_executable != second[path].is_executable:
            return f"the executable bit of {path}"
    return ""


def _other_key(identifier: str, one: BuiltActions, other: BuiltActions) -> str:
    if one.actions[identifier].key == other.actions[identifier].key:
        return ""
    first, second = one.components(identifier), other.components(identifier)
    names = [name for name in sorted(first.keys() | second.keys()) if first.get(name) != second.get(name)]
    if not names:
        return "another key of equal components"
    return f"{names[0]}, {first.get(names[0], 'absent')} against {second.get(names[0], 'absent')}"
