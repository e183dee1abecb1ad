"""From words of the command line to typed values.

Typer uses pydantic for this, whose import takes longer than everything else that a no-op build does. Our options have
few types, so they are converted here instead.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer


class _Reader:
    """Replaces typer's reader of one parameter."""

    def __init__(self, annotation: Any, least: float | None, most: float | None) -> None:
        self._annotation = annotation
        self._least = least
        self._most = most

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of the parameter's type. Raises typer.BadParameter for a word that has none."""
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
                raise ValueError(f'"{word}" is not one of {known}') from None
        if kind in (int, float):
            return self._number(kind, word)
        if kind is Path and not word:
            raise ValueError("the path is empty")
        if kind in (str, Path):
            return kind(word)
        raise TypeError(f"options of type {kind!r} are not supported")

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
    """Replace the readers of typer's parameters."""
    for param in params:
        descriptor = getattr(param, "type_descriptor", None)
        if descriptor is not None:  # typer's own options, such as --help, have none
            info = descriptor.parameter_info
            reader = _Reader(descriptor.annotation, info.min, info.max)
            param.get_runtime_param = lambda reader=reader: reader
