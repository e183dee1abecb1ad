"""Lines of a chat that are commands, and those that are not."""

from __future__ import annotations

import pytest

from mlcbuild.cli.run.chat_commands import HELP, Command, read_command
from mlcbuild.errors import UsageError


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hello /reset", (None, "hello /reset")),
        ("//usr is a folder", (None, "/usr is a folder")),
        ("/reset", (Command.RESET, "")),
        ("/system  Be brief. ", (Command.SYSTEM, "Be brief.")),
        ("/system", (Command.SYSTEM, "")),
        (" /reset", (None, " /reset")),
    ],
)
def test_commands(line: str, expected: tuple[Command | None, str]) -> None:
    assert read_command(line) == expected


def test_a_command_that_does_not_exist_is_told() -> None:
    with pytest.raises(UsageError, match=r'no such command: /rest\n  did you mean "/reset"\?\n  /help lists'):
        read_command("/rest")
    with pytest.raises(UsageError, match="/undo takes no text"):
        read_command("/undo twice")


def test_help_names_every_command_but_itself() -> None:
    listed = {line.split()[0] for line in HELP if line.startswith("/") and not line.startswith("//")}
    assert listed == {command.value for command in Command} - {Command.HELP.value}
    assert all(len(line) <= 80 for line in HELP)
