"""The Jinja environment of chat templates: that of transformers' `apply_chat_template`, name by name.

Beside Jinja's own names a template has `raise_exception`, `strftime_now`, `{% generation %}`, `{% break %}` and
`{% continue %}`. Its `tojson` writes JSON for a model, not for HTML. `dict` and `namespace` are tamed: neither gives a
template the attributes of a Python class.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace


def environment(clock: Callable[[], datetime] | None = None) -> jinja2.Environment:
    """A new environment. Without a `clock` it has no `strftime_now`, which templates ask for with `is defined`."""
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    made.filters["tojson"] = _to_json
    made.globals.update(raise_exception=_raise_exception, dict=_Dict(), namespace=_Namespace)
    if clock is not None:
        now = clock
        made.globals["strftime_now"] = lambda format: now().strftime(format)  # may be given by this name
    return made


class _Generation(Extension):
    """`{% generation %}` marks what a model wrote, for training. It changes no text.

    Its content is a call's body, as in transformers: a variable that is set in it ends with it.
    """

    tags = {"generation"}  # noqa: RUF012  Jinja declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

    def _content(self, caller: Callable[[], str]) -> str:
        return caller()


class _Dict:
    """Python's `dict` for templates, without the type's other attributes."""

    def __call__(self, *arguments: Any, **members: Any) -> dict[Any, Any]:
        return dict(*arguments, **members)

    def fromkeys(self, *arguments: Any) -> dict[Any, Any]:
        return dict.fromkeys(*arguments)


class _Namespace(Namespace):
    """Jinja's `namespace`, which no name with a leading underscore may enter."""

    def __init__(*arguments: Any, **members: Any) -> None:
        # Without a parameter `self`, so that a template may have a member of that name.
        self, *given = arguments
        attributes = dict(*given, **members)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f'a namespace cannot have the attribute "{name}", with an underscore')


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
