"""From the words of a command line to values.

Typer leaves this to pydantic, whose import would take longer than all else that a build with nothing to do does.
The few types that our options have are read here instead.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer


class _Reader:
    """Stands in for typer's own reader of one parameter."""

    def __init__(self, annotation: Any, least: float | None, most: float | None) -> None:
        self._annotation = annotation
        self._least = least
        self._most = most

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of a parameter's annotation. Raises typer.BadParameter for a word that is none."""
        try:
            if get_origin(self._annotation) is list:
                return [self._read(get_args(self._annotation)[0], word) for word in value or ()]
            return None if value is None else self._read(self._annotation, value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None

    def _read(self, kind: Any, word: Any) -> Any:
        if isinstance(word, kind):
            return word
        if issubclass(kind, enum.Enum):
            known = ", ".join(str(member.value) for member in kind)
            try:
                return kind(word)
            except ValueError:
                raise ValueError(f'"{word}" is none of {known}') from None
        if kind in (int, float):
            return self._number(kind, word)
        if kind in (str, Path):
            return kind(word)
        raise TypeError(f"no option can be of type {kind!r}")

    def _number(self, kind: type[int | float], word: str) -> int | float:
        try:
            number = kind(word)
        except ValueError:
            raise ValueError(f'"{word}" is not a{"n integer" if kind is int else " number"}') from None
        if (self._least is not None and not number >= self._least) or (
            self._most is not None and not number <= self._most
        ):
            most = "" if self._most is None else f" and at most {self._most:g}"
            raise ValueError(f"{word} is out of range: at least {self._least:g}{most}")
        return number


def read_without_pydantic(params: list[Any]) -> None:
    """Give typer's parameters our readers."""
    for param in params:
        descriptor = getattr(param, "type_descriptor", None)
        if descriptor is not None:  # what typer adds itself, such as --help, reads no words
            info = descriptor.parameter_info
            reader = _Reader(descriptor.annotation, info.min, info.max)
            param.get_runtime_param = lambda reader=reader: reader
