"""The commands of a chat: lines that begin with a slash."""

from __future__ import annotations

import enum

from mlcbuild.errors import UsageError
from mlcbuild.suggestions import did_you_mean


class Command(enum.StrEnum):
    HELP = "/help"
    RESET = "/reset"
    SYSTEM = "/system"
    UNDO = "/undo"
    RETRY = "/retry"
    STATS = "/stats"
    EXIT = "/exit"


HELP = (
    "/system TEXT  sets the system message, or without TEXT removes it",
    "/undo         takes the last turn back",
    "/retry        answers the last message again",
    "/reset        forgets all turns; the system message stays",
    "/stats        shows the speed of the last answer, and how full the context is",
    "/exit         ends, as Ctrl-D does",
    '"""           begins a message of several lines, which ends with """',
    "//            begins a message that begins with one slash",
)


def read_command(line: str) -> tuple[Command | None, str]:
    """A command and its text, or None and a message. Raises UsageError for a command that does not exist."""
    if not line.startswith("/"):
        return None, line
    if line.startswith("//"):
        return None, line[1:]
    word, _, text = line.strip().partition(" ")
    known = [command.value for command in Command]
    if word not in known:
        guess = did_you_mean(word, known)
        hints = (guess, "/help lists the commands; a message that begins with a slash needs two")
        raise UsageError(f"no such command: {word}", advice=tuple(hint for hint in hints if hint))
    command = Command(word)
    if text.strip() and command is not Command.SYSTEM:
        raise UsageError(f"{word} takes no text")
    return command, text.strip()
