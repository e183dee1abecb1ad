"""What the disk cache knows of an action: inputs, outputs, parameters, log, and what differs from its former key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.merkle import files_of
from mlcbuild.cache.reapi import ActionResult, Tree
from mlcbuild.cli.explain.text_diff import component_digest, text_diff
from mlcbuild.cli.log.stored_results import StoredResults
from mlcbuild.cli.report_page.build import OutputFile, PageAction
from mlcbuild.engine.key_difference import Difference, KeyContent, differences
from mlcbuild.engine.keys import read_breakdown
from mlcbuild.errors import MlcbuildError

_CHANGED = "changed"
_LARGEST_SOURCE = 256 << 10  # bytes of a file whose diff is shown
_LONGEST_LINE = 400  # characters
_INPUT = "input "
_PARAMETER = "parameter "
_SHOWN_APART = (_INPUT, _PARAMETER, "output ", "schema")
_LONG = re.compile(r"[0-9a-f]{32,}/[0-9]+")  # the digest that stands for a long value


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDifference:
    """A component of the key that differs from the former one; `text` is the diff of a source file."""

    difference: Difference
    text: tuple[str, ...] = ()


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
    differences: tuple[PageDifference, ...] = ()


class DetailReader:
    """Reads details of actions, each of which may be missing: the disk cache forgets.

    Most keys cost two small files: the result, and the components of the key. A page has thousands of them.
    """

    def __init__(self, stored: StoredResults, made: frozenset[str]) -> None:
        """`made` are the digests of outputs of the build: other inputs are sources, whose diffs people read."""
        self._stored = stored
        self._made = made
        self._former: dict[str, KeyContent | None] = {}  # by key; equal actions share them

    def read(self, action: PageAction) -> ActionDetails:
        found = self._stored.result(action.key) if action.key else None
        if found is None:
            return ActionDetails(outputs=action.output_files, log=action.log)
        result, store = found
        outputs = action.output_files or tuple(_outputs(result, store))
        log = action.log or _log(result, store)
        with suppress(MlcbuildError):
            if breakdown := read_breakdown(store, result):
                content = self._content(action, dict(breakdown))
                return ActionDetails(
                    is_known=True,
                    inputs=tuple(_inputs(content)),
                    outputs=outputs,
                    components=tuple(
                        each for each in content.components.items() if not each[0].startswith(_SHOWN_APART)
                    ),
                    parameters=content.parameters,
                    log=log,
                    differences=self._differences(action, content),
                )
        return ActionDetails(outputs=outputs, log=log)

    def _content(self, action: PageAction, components: Mapping[str, str]) -> KeyContent:
        """What the key was made of: whole only where parameters are too long for the components, or to be compared."""
        parameters = {
            name.removeprefix(_PARAMETER): value for name, value in components.items() if name.startswith(_PARAMETER)
        }
        if action.cause == _CHANGED or any(_LONG.fullmatch(value) for value in parameters.values()):
            whole = self._whole(action.key)
            if whole is not None:
                return whole
        return KeyContent(
            components=components, parameters={name: _parameter(value) for name, value in parameters.items()}
        )

    def _differences(self, action: PageAction, content: KeyContent) -> tuple[PageDifference, ...]:
        if action.cause != _CHANGED or not action.previous_key:
            return ()
        if action.previous_key not in self._former:
            self._former[action.previous_key] = self._whole(action.previous_key)
        before = self._former[action.previous_key]
        found = differences(before, content) if before else ()
        return tuple(PageDifference(difference=each, text=self._text(action, each)) for each in found)

    def _text(self, action: PageAction, difference: Difference) -> tuple[str, ...]:
        before, now = difference.before, difference.now
        if difference.kind != "input" or not before or not now:
            return ()
        digest = now.partition(" ")[0]
        if digest in self._made and all(file.digest != digest for file in action.output_files):
            return ()
        digests = component_digest(before), component_digest(now)
        if max(digest.size_bytes for digest in digests) > _LARGEST_SOURCE:
            return ()
        old, new = (self._stored.blob(digest) for digest in digests)
        return tuple(line[:_LONGEST_LINE] for line in text_diff(old, new))

    def _whole(self, key: str) -> KeyContent | None:
        stored = self._stored.key(key)
        return KeyContent.of_stored(stored, self._stored.listing(stored.code)) if stored else None


def _inputs(content: KeyContent) -> Iterator[OutputFile]:
    for name, value in content.components.items():
        if name.startswith(_INPUT):
            yield OutputFile(path=name.removeprefix(_INPUT), digest=value.partition(" ")[0])


def _parameter(value: str) -> Any:
    with suppress(ValueError):
        return json.loads(value)
    return value


def _outputs(result: ActionResult, store: DiskStore) -> Iterator[OutputFile]:
    """The files of a result, also those in folders."""
    for file in result.output_files:
        yield OutputFile(path=file.path, digest=str(file.digest))
    for directory in result.output_directories:
        with suppress(MlcbuildError, ValueError):
            tree = Tree.decode(store.read(directory.tree_digest))
            for inner in files_of(tree, store.function):
                yield OutputFile(path=f"{directory.path}/{inner.path}", digest=str(inner.digest))


def _log(result: ActionResult, store: DiskStore) -> str:
    with suppress(MlcbuildError):
        if result.stdout_digest is not None:
            return store.read(result.stdout_digest).decode("utf-8", "replace")
    return ""
