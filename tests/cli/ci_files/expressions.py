"""Expressions of GitHub Actions, `${{ … }}`, as far as our workflows use them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

Contexts = Mapping[str, Any]
_TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|([\w-]+(?:\.[\w-]+)*)|(==|!=|&&|\|\||[!(),]))")
_EMBEDDED = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


class ExpressionError(Exception):
    """An expression that this reader does not know."""


def interpolated(text: str, contexts: Contexts) -> Any:
    """A text with the values of its expressions; the value itself, of any type, where the text is one expression."""
    whole = re.fullmatch(r"\s*\$\{\{((?:(?!\}\}).)*)\}\}\s*", text, re.DOTALL)
    if whole:
        return evaluate(whole[1], contexts)
    return _EMBEDDED.sub(lambda found: shown(evaluate(found[1], contexts)), text)


def shown(value: Any) -> str:
    """A value in a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def evaluate(text: str, contexts: Contexts) -> Any:
    """The value of an expression. Raises ExpressionError."""
    tokens: list[tuple[str, str]] = []
    at, text = 0, text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if not found:
            raise ExpressionError(f"{text!r} at {at}")
        kinds = ("string", "name", "operator")
        tokens.append(next((kind, each) for kind, each in zip(kinds, found.groups(), strict=True) if each is not None))
        at = found.end()
    value, rest = _either(tokens, contexts)
    if rest:
        raise ExpressionError(f"{text!r}: {rest}")
    return value


Tokens = list[tuple[str, str]]


def _either(tokens: Tokens, contexts: Contexts) -> tuple[Any, Tokens]:
    value, tokens = _both(tokens, contexts)
    while tokens and tokens[0][1] == "||":
        other, tokens = _both(tokens[1:], contexts)
        value = value or other
    return value, tokens


def _both(tokens: Tokens, contexts: Contexts) -> tuple[Any, Tokens]:
    value, tokens = _compared(tokens, contexts)
    while tokens and tokens[0][1] == "&&":
        other, tokens = _compared(tokens[1:], contexts)
        value = value and other
    return value, tokens


def _compared(tokens: Tokens, contexts: Contexts) -> tuple[Any, Tokens]:
    value, tokens = _single(tokens, contexts)
    if tokens and tokens[0][1] in ("==", "!="):
        equal = tokens[0][1] == "=="
        other, tokens = _single(tokens[1:], contexts)
        value = (shown(value).lower() == shown(other).lower()) is equal
    return value, tokens


def _single(tokens: Tokens, contexts: Contexts) -> tuple[Any, Tokens]:
    if not tokens:
        raise ExpressionError("it ends too early")
    (kind, text), rest = tokens[0], tokens[1:]
    if text == "!":
        value, rest = _single(rest, contexts)
        return not value, rest
    if text == "(":
        value, rest = _either(rest, contexts)
        return value, rest[1:]
    if kind == "string":
        return text[1:-1].replace("''", "'"), rest
    if rest and rest[0][1] == "(":
        arguments: list[Any] = []
        rest = rest[1:]
        while rest[0][1] != ")":
            value, rest = _either(rest, contexts)
            arguments.append(value)
            rest = rest[1:] if rest[0][1] == "," else rest
        return _call(text, arguments), rest[1:]
    value = contexts
    for part in text.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value, rest


def _call(name: str, arguments: list[Any]) -> Any:
    match name:
        case "fromJSON":
            return json.loads(arguments[0])
        case "cancelled":
            return False
        case _:
            raise ExpressionError(f"unknown function {name}")
