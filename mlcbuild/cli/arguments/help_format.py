"""The format of `--help`: typer's layout with conventional usage lines and unwrapped examples."""

from __future__ import annotations

import re
from typing import Any

from typer import core

from mlcbuild.cli.arguments.conversion import read_without_pydantic

WIDTH = 100
_EXAMPLE_WIDTH = 76  # within 80 columns, behind the indent of the page and of the examples
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}


def examples(*lines: str) -> str:
    """The epilog of a command: lines that no formatter may wrap.

    A line is a command, and after two spaces or more what it does. That is aligned in a column, or stands below each
    command where a line would not fit into 80 columns.
    """
    rows = [(command, "".join(note)) for command, *note in (re.split(r" {2,}", line, maxsplit=1) for line in lines)]
    column = max((len(command) for command, note in rows if note), default=0) + 3
    if all(column + len(note) <= _EXAMPLE_WIDTH for _, note in rows if note):
        shown = [f"{command:<{column}}{note}" if note else command for command, note in rows]
    else:
        shown = [line for command, note in rows for line in (command, f"    {note}")[: 2 if note else 1]]
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in shown)


class HelpCommand(core.TyperCommand):
    """A command whose arguments are shown by their metavar alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        read_without_pydantic(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = [self.options_metavar] if self.options_metavar else []
        return [*pieces, *(name for name, _ in self._arguments(ctx))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        if rows := self._arguments(ctx):
            with formatter.section("Arguments"):
                formatter.write_dl(rows)
        records = [param.get_help_record(ctx) for param in self.get_params(ctx) if param.param_type_name == "option"]
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record is not None])

    def _arguments(self, ctx: Any) -> list[tuple[str, str]]:
        return [
            (param.metavar or param.name.upper(), getattr(param, "help", None) or "")
            for param in self.get_params(ctx)
            if param.param_type_name == "argument"
        ]
