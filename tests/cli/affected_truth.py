"""What `mlcbuild affected` lists, beside what builds of everything at both states show."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.end_to_end.world import World

NO_RESULTS, FORMER_RESULTS, ALL_RESULTS = "no results", "results of the former state", "results of both states"
CACHES = (NO_RESULTS, FORMER_RESULTS, ALL_RESULTS)
"""What the disk cache holds when `affected` is asked."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One edit: the labels that it changed, and those that were listed, by what the disk cache held."""

    edit: str
    targets: int
    changed: frozenset[str]
    listed: Mapping[str, frozenset[str]]

    @property
    def missed(self) -> dict[str, frozenset[str]]:
        return {cache: self.changed - found for cache, found in self.listed.items() if self.changed - found}

    def excess(self, cache: str) -> frozenset[str]:
        return self.listed[cache] - self.changed


class Repository:
    """A workspace in Git, all of which is built at each state."""

    def __init__(self, world: World, *patterns: str) -> None:
        self.world = world
        self._patterns = patterns or ("//...",)
        self._state: Mapping[str, Any] = {}

    def begin(self) -> None:
        self.git("init", "-q")
        self.commit()
        self._state = self._built()

    def compare(self, edit: str, *, is_committed: bool) -> Compared:
        """Compare the former state with the files as they are, and take these for the former state of the next call.

        The edit is committed before the question if `is_committed`, and after it if not.
        """
        if is_committed:
            self.commit()
        since = "HEAD~1" if is_committed else "HEAD"
        empty = self.world.folder / "empty"
        listed = {NO_RESULTS: self._listed(since, XDG_CACHE_HOME=str(empty)), FORMER_RESULTS: self._listed(since)}
        shutil.rmtree(empty, ignore_errors=True)
        before, self._state = self._state, self._built()
        listed[ALL_RESULTS] = self._listed(since)
        if not is_committed:
            self.commit()
        changed = frozenset(label for label, state in self._state.items() if state != before.get(label))
        return Compared(edit=edit, targets=len(self._state), changed=changed, listed=listed)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "state")

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.world.root, check=True, capture_output=True)

    def _listed(self, since: str, **environment: str) -> frozenset[str]:
        done = self.world.process("affected", "--since", since, *self._patterns, "--output=json", **environment)
        assert done.code == 0, done.err
        reasons: dict[str, str] = json.loads(done.out)["targets"]
        assert all(reasons.values())
        return frozenset(reasons)

    def _built(self) -> dict[str, Any]:
        """By label: the keys of the target's actions and the bytes of its outputs. Of one that has neither, its
        attributes, and the bytes of the files that it names."""
        report = self.world.folder / "report.json"
        done = self.world.process("build", *self._patterns, "--build-report", str(report))
        assert done.code == 0, done.err
        document = json.loads(report.read_text())
        asked = self.world.process("query", " + ".join(self._patterns), "--output=json")
        assert asked.code == 0, asked.err
        declared = {each["label"]: each for each in json.loads(asked.out)}
        keys: dict[str, dict[str, str]] = {}
        for action, key in document["keys"].items():
            keys.setdefault(action.partition(" ")[0], {})[action] = key
        found = {}
        for label, target in document["targets"].items():
            outputs = {path: self._bytes(path) for path in target["outputs"]}
            own = keys.get(label, {})
            found[label] = (own, outputs) if own or outputs else self._declaration(declared[label])
        return found

    def _declaration(self, record: Mapping[str, Any]) -> Any:
        files = {path: self._bytes(path) for path in record.get("files", ())}
        return {name: value for name, value in record.items() if name not in ("location", "place")}, files

    def _bytes(self, path: str) -> Any:
        file = self.world.root / path
        return [each.read_bytes() for each in sorted(file.rglob("*"))] if file.is_dir() else file.read_bytes()


def table(compared: list[Compared]) -> str:
    """A row an edit: how many targets there were, changed, and were listed beyond these."""
    rows = [("EDIT", "TARGETS", "CHANGED", *(f"BEYOND, {cache}" for cache in CACHES), "MISSED")]
    for each in compared:
        beyond = (str(len(each.excess(cache))) for cache in CACHES)
        rows.append((each.edit, str(each.targets), str(len(each.changed)), *beyond, str(len(each.missed))))
    totals = [sum(int(row[column]) for row in rows[1:]) for column in range(1, len(rows[0]))]
    rows.append(("all", *map(str, totals)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = []
    for name, *cells in rows:
        aligned = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        shown.append("  ".join((name.ljust(widths[0]), *aligned)))
    return "\n".join(shown)
