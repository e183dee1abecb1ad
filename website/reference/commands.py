"""Every command with its options, as the application declares them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from mlcbuild.cli.main import PROGRAM, application
from mlcbuild.cli.run.generation_options import generation_command

_HEAD = """\
# Commands and options

What `mlcbuild COMMAND --help` shows, on one page. [The command line](command-line.md) explains it.
"""


def commands_page() -> str:
    """The page, in Markdown."""
    root: Any = get_command(application())
    parts = [_HEAD, f"## {PROGRAM}\n", *_body(root, PROGRAM)]
    for name, command in root.commands.items():
        parts += _command(command, f"{PROGRAM} {name}", level=2)
        for subname, subcommand in getattr(command, "commands", {}).items():
            parts += _command(subcommand, f"{PROGRAM} {name} {subname}", level=3)
        if name == "run":
            generation = generation_command("LABEL")
            parts += _command(generation, f"{PROGRAM} run LABEL --", level=3)
    return "\n".join(parts)


def _command(command: Any, path: str, *, level: int) -> Iterator[str]:
    yield f"{'#' * level} {path}\n"
    yield from _body(command, path)


def _body(command: Any, path: str) -> Iterator[str]:
    import click

    context = click.Context(command, info_name=path)
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{path} {pieces}\n```\n"
    if command.help:
        yield _prose(command.help) + "\n"
    rows = [row for parameter in command.get_params(context) if (row := _row(parameter, context))]
    if rows:
        yield "\n".join(["| argument or option | meaning |", "|---|---|", *rows]) + "\n"
    if command.epilog:
        yield _examples(command.epilog)


def _row(parameter: Any, context: Any) -> str:
    if parameter.param_type_name == "argument":
        names, text = parameter.metavar or parameter.name.upper(), getattr(parameter, "help", None) or ""
    else:
        record = parameter.get_help_record(context)
        if record is None:
            return ""
        names, text = record
    return f"| `{_cell(names)}` | {_cell(_prose(text))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _prose(text: str) -> str:
    """Help is plain text: what Markdown would read otherwise is escaped."""
    return re.sub(r"([<>*_])", r"\\\1", text.replace("\b", "").strip())


def _examples(epilog: str) -> str:
    lines = [line for line in epilog.replace("\b", "").strip().splitlines() if line.startswith("  ")]
    return "```text\n" + "".join(f"{line[2:]}\n" for line in lines) + "```\n"
