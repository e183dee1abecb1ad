"""The format of `--help`: typer's layout with conventional usage lines and unwrapped examples."""

from __future__ import annotations

from typing import Any

from typer import core

from mlcbuild.cli.arguments.conversion import read_without_pydantic

WIDTH = 100
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}


def examples(*lines: str) -> str:
    """The epilog of a command: lines that no formatter may wrap."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


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
