"""What the disk cache knows of an action: inputs, outputs, parameters, log, and what differs from its former key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mlcbuild.cache.merkle import files_of
from mlcbuild.cache.reapi import Tree
from mlcbuild.cli.log.stored_results import StoredResults
from mlcbuild.cli.report_page.build import OutputFile, PageAction
from mlcbuild.engine.key_difference import Difference, KeyContent, differences
from mlcbuild.engine.keys import StoredKey
from mlcbuild.errors import MlcbuildError

_CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionDetails:
    """`components` are those of the key without inputs, by name; `parameters` are whole.

    `is_known`: the disk cache still has what the key was made of.
    """

    is_known: bool = False
    inputs: tuple[OutputFile, ...] = ()
    outputs: tuple[OutputFile, ...] = ()
    components: tuple[tuple[str, str], ...] = ()
    parameters: Mapping[str, Any] | None = None
    log: str = ""
    differences: tuple[Difference, ...] = ()


class DetailReader:
    """Reads details of actions, each of which may be missing: the disk cache forgets."""

    def __init__(self, stored: StoredResults) -> None:
        self._stored = stored
        self._contents: dict[str, KeyContent | None] = {}  # of former keys, which equal actions share

    def read(self, action: PageAction) -> ActionDetails:
        stored = self._stored.key(action.key) if action.key else None
        content = self._content(stored) if stored else None
        outputs = action.output_files or tuple(self._outputs(action.key))
        log = action.log or (self._stored.log(action.key) if stored else "")
        if content is None:
            return ActionDetails(outputs=outputs, log=log)
        before = self._former(action.previous_key) if action.cause == _CHANGED else None
        return ActionDetails(
            is_known=True,
            inputs=tuple(
                OutputFile(path=name.removeprefix("input "), digest=value.partition(" ")[0])
                for name, value in content.components.items()
                if name.startswith("input ")
            ),
            outputs=outputs,
            components=tuple(
                (name, value)
                for name, value in content.components.items()
                if not name.startswith(("input ", "parameter ", "output ", "schema"))
            ),
            parameters=content.parameters,
            log=log,
            differences=differences(before, content) if before else (),
        )

    def _former(self, key: str) -> KeyContent | None:
        if key not in self._contents:
            stored = self._stored.key(key) if key else None
            self._contents[key] = self._content(stored) if stored else None
        return self._contents[key]

    def _content(self, stored: StoredKey) -> KeyContent:
        return KeyContent.of_stored(stored, self._stored.listing(stored.code))

    def _outputs(self, key: str) -> Iterator[OutputFile]:
        """The files of a result, also those in folders. Nothing where it has gone."""
        found = self._stored.result(key)
        if found is None:
            return
        result, store = found
        for file in result.output_files:
            yield OutputFile(path=file.path, digest=str(file.digest))
        for directory in result.output_directories:
            with suppress(MlcbuildError, ValueError):
                tree = Tree.decode(store.read(directory.tree_digest))
                for inner in files_of(tree, store.function):
                    yield OutputFile(path=f"{directory.path}/{inner.path}", digest=str(inner.digest))
