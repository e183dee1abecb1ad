"""What differs between two keys of an action, component by component, and inside parameters and code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcbuild.engine.action import StageCall
from mlcbuild.engine.code_listing import CodeChange, CodeListing, code_changes
from mlcbuild.engine.keys import STAGE_PROGRAM, KeySource, StoredKey, canonical_json, components_of

_INPUT = "input"
# Kinds of components that have a name after the kind; all others are a kind alone.
_NAMED_KINDS = (
    _INPUT,
    "output",
    "parameter",
    "plug-in",
    "toolchain",
    "environment",
    "argument",
    "group",
    "result",
)


@dataclass(frozen=True, kw_only=True)
class KeyContent:
    """What a key was made of. `parameters` are whole, while components have digests of long values."""

    components: Mapping[str, str]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    code: CodeListing | None = None

    @classmethod
    def of_stored(cls, stored: StoredKey, code: CodeListing | None) -> KeyContent:
        arguments = stored.command.arguments
        parameters: Mapping[str, Any] = {}
        if len(arguments) == 3 and arguments[0] == STAGE_PROGRAM:
            try:
                parameters = dict(json.loads(arguments[2])["parameters"])
            except (ValueError, KeyError, TypeError):
                parameters = {}
        return cls(components=dict(stored.breakdown), parameters=parameters, code=code)

    @classmethod
    def of_source(cls, source: KeySource, code: CodeListing | None) -> KeyContent:
        command = source.action.command
        parameters = json.loads(canonical_json(dict(command.parameters))) if isinstance(command, StageCall) else {}
        return cls(components=dict(components_of(source)), parameters=parameters, code=code)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A component that differs. `before` or `now` is None where there was, or is, none.

    `kind` is "input", "parameter", "toolchain", "implementation" and so on, `name` what stands after it. `inside` are
    the differences inside a parameter: the path in its JSON, the old value and the new one, as JSON. `code` says which
    functions of which modules changed; it is empty if a listing of the code is missing.
    """

    kind: str
    name: str
    before: str | None
    now: str | None
    inside: tuple[tuple[str, str | None, str | None], ...] = ()
    code: tuple[CodeChange, ...] = ()


def differences(before: KeyContent, now: KeyContent, *, with_inputs: bool = True) -> tuple[Difference, ...]:
    """The components that differ, by name. Without inputs, if those of `now` are not known."""
    found = []
    for component in sorted({*before.components, *now.components}):
        old, new = before.components.get(component), now.components.get(component)
        kind, name = _split(component)
        if old == new or (kind == _INPUT and not with_inputs):
            continue
        inside: tuple[tuple[str, str | None, str | None], ...] = ()
        code: tuple[CodeChange, ...] = ()
        if kind == "parameter":
            inside = tuple(_inside(name, before.parameters.get(name), now.parameters.get(name)))
        elif kind == "implementation" and before.code is not None and now.code is not None:
            code = code_changes(before.code, now.code)
        found.append(Difference(kind=kind, name=name, before=old, now=new, inside=inside, code=code))
    return tuple(found)


def _split(component: str) -> tuple[str, str]:
    kind, _, name = component.partition(" ")
    return (kind, name) if kind in _NAMED_KINDS else (component, "")


def _inside(path: str, before: object, now: object) -> Iterator[tuple[str, str | None, str | None]]:
    """The smallest parts of two JSON values that differ."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted({*before, *now}):
            if name not in before:
                yield f"{path}.{name}", None, canonical_json(now[name])
            elif name not in now:
                yield f"{path}.{name}", canonical_json(before[name]), None
            else:
                yield from _inside(f"{path}.{name}", before[name], now[name])
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from _inside(f"{path}[{index}]", old, new)
    elif canonical_json(before) != canonical_json(now):  # type: ignore[arg-type]  # both come from JSON
        yield path, canonical_json(before), canonical_json(now)  # type: ignore[arg-type]  # as above
