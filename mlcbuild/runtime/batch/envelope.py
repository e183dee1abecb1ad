"""A line of a batch: a request in the form of OpenAI's batch API, or the fields of its body alone.

`{"custom_id": …, "method": "POST", "url": "/v1/chat/completions", "body": {…}}` and `{"custom_id": …, …}` mean the
same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mlcbuild.errors import UsageError
from mlcbuild.runtime.tokenizer import check_text

Request = TypeVar("Request")

_NAMES = ("custom_id", "method", "url", "body")


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What a line says: `url` is None where it names none, and `body` has no field that is null."""

    custom_id: str | None
    url: object
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRequest:
    """A line that cannot be answered, and why."""

    number: int
    custom_id: str | None
    message: str


def parse_line(line: bytes, number: int, parse: Callable[[Envelope], Request]) -> Request | RejectedRequest:
    """What `parse` makes of a line; a line that cannot be read, or for which it raises UsageError, is rejected."""
    custom_id = None
    try:
        document = _object(line)
        given = document.get("custom_id")
        if not isinstance(given, str | None):
            raise UsageError(f'"custom_id" is {shown(given)}; it has to be a text')
        check_text(given or "", '"custom_id"')
        custom_id = given
        check_text(json.dumps(document, ensure_ascii=False), "the line")  # JSON can say halves of pairs: "\\ud83d"
        body = {name: value for name, value in _body(document).items() if value is not None}
        return parse(Envelope(custom_id=custom_id, url=document.get("url"), body=body))
    except UsageError as error:
        return RejectedRequest(number=number, custom_id=custom_id, message=str(error))


def _body(document: dict[str, Any]) -> dict[str, Any]:
    if "body" not in document:
        return {name: value for name, value in document.items() if name not in _NAMES}
    if unknown := [name for name in document if name not in _NAMES]:
        raise UsageError(f'"{unknown[0]}" stands beside "body"; put it into "body"')
    if document.get("method") not in (None, "POST"):
        raise UsageError(f'"method" is {shown(document["method"])}; it has to be "POST"')
    body = document["body"]
    if not isinstance(body, dict):
        raise UsageError(f'"body" is {shown(body)}; it has to be a JSON object')
    return body


def _object(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line, object_pairs_hook=_members)
    except UnicodeDecodeError as error:
        raise UsageError(f"the line is not UTF-8: it has byte {line[error.start]:#04x} at {error.start}") from None
    except json.JSONDecodeError as error:
        raise UsageError(f"the line is not JSON: {error.msg} at column {error.colno}") from None
    except (RecursionError, ValueError) as error:
        raise UsageError(f"the line cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"the line is {shown(document)}; it has to be a JSON object")
    return document


def _members(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise UsageError(f'"{next(name for name in names if names.count(name) > 1)}" is given twice')
    return members


def shown(value: object) -> str:
    """JSON of a value, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
