"""Commands and options that pages name exist, wherever they are named: in blocks, tables or sentences."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from mlcbuild.cli.main import PROGRAM, application
from mlcbuild.cli.run.generation_options import generation_command
from tests.documentation.page import COMMAND_LANGUAGES
from tests.documentation.pages import paths

_CODE = re.compile(
    r"^ *```(?P<language>[^\n]*)\n(?P<block>.*?)^ *```|(?P<ticks>`+)(?P<span>.+?)(?P=ticks)", re.M | re.S
)
# The program where a command begins, perhaps after variables, and its arguments up to the command's end.
_COMMAND = re.compile(
    rf"(?:^|\$ |[;&|(] *|=\S* )(?:\S*/)?{PROGRAM} (?P<arguments>(?:[^\n|;&<>`()]|\\\n)*)", re.MULTILINE
)
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
# Options of other programs that sentences name.
OTHER_PROGRAMS = {
    "--model": "benchmarks.incremental",
    "--storage_mode": "bazel-remote",
    "--insecure-ignore-tlog": "cosign",
}
APPLICATION = get_command(application())


def options_of(command: Any) -> set[str]:
    found = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return found | {"--help", "-h"}


def all_options(command: Any) -> set[str]:
    found = options_of(command)
    for subcommand in getattr(command, "commands", {}).values():
        found |= all_options(subcommand)
    return found


ALL_OPTIONS = all_options(APPLICATION) | all_options(generation_command("//:x"))


def flags_of(command: Any) -> set[str]:
    """The options that take no value."""
    return {name for parameter in command.params if getattr(parameter, "is_flag", False) for name in parameter.opts}


def errors_of(arguments: list[str]) -> Iterator[str]:
    """What is wrong with the arguments of one `mlcbuild …`: unknown commands and options."""
    command: Any = APPLICATION
    known, flags = options_of(command), {"--help", "-h", "--version"}
    names = [PROGRAM]
    words = iter(arguments)
    for word in words:
        if word == "--":
            return
        if re.match(r"--?[A-Za-z]", word):
            option, has_value, _ = word.partition("=")
            if option not in known and (option.startswith("--") or option[:2] not in known):
                yield f"no option {option} of {' '.join(names)}"
            elif not has_value and option in known - flags:
                next(words, None)
        elif subcommands := getattr(command, "commands", None):
            if word in subcommands:
                command = subcommands[word]
                names.append(word)
                known |= options_of(command)
                flags |= flags_of(command)
            elif re.fullmatch(r"[a-z][a-z-]+", word):
                yield f"no command {' '.join([*names, word])}"


@pytest.mark.parametrize("path", paths(), ids=lambda path: path.stem)
def test_commands_and_options_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wrong = []
    for match in _CODE.finditer(text):
        code = match["span"] or (match["block"] if match["language"] in COMMAND_LANGUAGES else "")
        line = text.count("\n", 0, match.start()) + 1
        for command in _COMMAND.finditer(code):
            try:
                words = shlex.split(command["arguments"].replace("\\\n", " "), comments=True)
            except ValueError:
                words = command["arguments"].split()  # a quotation mark in a pattern of a shell
            wrong += [f"{path.name}:{line}: {error}" for error in errors_of(words)]
        if match["span"] and code.startswith("--"):
            named = [option for option in _OPTION.findall(code)[:1] if option not in OTHER_PROGRAMS]
            wrong += [f"{path.name}:{line}: no command has {option}" for option in named if option not in ALL_OPTIONS]
    assert not wrong, "\n".join(wrong)


def test_the_check_finds_what_is_not_there() -> None:
    assert list(errors_of(["build", "--keep-goin", "//:x"])) == ["no option --keep-goin of mlcbuild build"]
    assert list(errors_of(["cache", "shrink"])) == ["no command mlcbuild cache shrink"]
    assert list(errors_of(["-C", "there", "cache", "gc", "--max-size", "5G"])) == []
    assert list(errors_of(["run", "//:x", "--", "--anything"])) == []
    assert list(errors_of(["build", "-j4", "-k", "--config", "release", "//..."])) == []
