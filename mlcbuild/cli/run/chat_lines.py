"""What a person types in a chat, line by line: with editing and a history on a terminal, or as a pipe brings it."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

PROMPT = "> "
GOES_ON = ". "  # before further lines of one message
QUOTES = '"""'
_HISTORY_LINES = 1000


class ChatLines:
    """Messages of standard input. `interactive` says whether a person types them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.interactive = sys.stdin.isatty()
        self._history = _history_file(environment) if self.interactive and sys.stdout.isatty() else None
        if self._history is not None:
            _edit_lines(self._history)

    def next_message(self) -> str | None:
        """A line, or the lines from one that begins with three quotation marks to one that ends with them; None at the
        end. Raises KeyboardInterrupt on a terminal."""
        line = self._line(PROMPT)
        if line is None or not line.lstrip().startswith(QUOTES):
            return line
        text = line.lstrip().removeprefix(QUOTES)
        while not text.rstrip().endswith(QUOTES):
            line = self._line(GOES_ON)
            if line is None:
                return text
            text += f"\n{line}"
        return text.rstrip().removesuffix(QUOTES).strip("\n")

    def close(self) -> None:
        """Keep the history. What cannot be written is no reason to fail."""
        if self._history is not None:
            _keep_history(self._history)

    def _line(self, prompt: str) -> str | None:
        if self._history is not None:
            try:
                return input(prompt)
            except EOFError:
                print()
                return None
        if self.interactive:
            print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.buffer.readline()
        return line.decode(errors="surrogateescape").removesuffix("\n").removesuffix("\r") if line else None


def _history_file(environment: Mapping[str, str]) -> Path:
    state = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "mlcbuild" / "chat-history"


def _edit_lines(history: Path) -> None:
    """Make `input` edit lines. Python without readline reads them as the terminal gives them."""
    try:
        import readline
    except ImportError:
        return
    sys.stdin.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    readline.set_history_length(_HISTORY_LINES)
    readline.set_auto_history(True)
    try:
        readline.read_history_file(history)
    except (OSError, UnicodeError):
        readline.clear_history()


def _keep_history(history: Path) -> None:
    try:
        import readline

        history.parent.mkdir(parents=True, exist_ok=True)
        # What somebody said to a model is nobody else's to read.
        os.close(os.open(history, os.O_WRONLY | os.O_CREAT, stat.S_IRUSR | stat.S_IWUSR))
        readline.write_history_file(history)
    except (ImportError, OSError):
        pass
