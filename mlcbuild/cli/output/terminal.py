"""Abilities of the output streams: colour, cursor movement, and size."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO


class ColorChoice(enum.StrEnum):
    """The values of `--color`."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class OutputFormat(enum.StrEnum):
    """The values of `--output` that every listing has."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Colours text if `enabled`. Every message reads the same without colour."""

    enabled: bool = False

    def bold(self, text: str) -> str:
        return self._painted("1", text)

    def dim(self, text: str) -> str:
        return self._painted("2", text)

    def error(self, text: str) -> str:
        return self._painted("1;31", text)

    def bad(self, text: str) -> str:
        return self._painted("31", text)

    def good(self, text: str) -> str:
        return self._painted("32", text)

    def warning(self, text: str) -> str:
        return self._painted("33", text)

    def _painted(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.enabled and text else text


def is_terminal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether `stream` is a terminal that understands cursor movement."""
    try:
        return stream.isatty() and environment.get("TERM", "") != "dumb"
    except ValueError:  # a closed stream
        return False


def style_for(stream: TextIO, choice: ColorChoice, environment: Mapping[str, str]) -> Style:
    """The style for `--color`; `auto` means colour on terminals unless NO_COLOR is set (https://no-color.org)."""
    if choice is ColorChoice.AUTO:
        return Style(enabled=is_terminal(stream, environment) and not environment.get("NO_COLOR"))
    return Style(enabled=choice is ColorChoice.ALWAYS)


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """Columns and rows, asked again each time because a window may be resized; 80 × 24 if unknown."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24


def wrapping_width(stream: TextIO, environment: Mapping[str, str]) -> int:
    """The columns into which text for people is wrapped: COLUMNS, or those of a terminal; 0 for lines of any length.

    A log or a pipe has no width, and a search finds a message there as one line.
    """
    told = environment.get("COLUMNS", "")
    if told.isascii() and told.isdigit() and int(told):
        return int(told)
    return terminal_size(stream)[0] if is_terminal(stream, environment) else 0
