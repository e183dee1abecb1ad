"""`mlcbuild info`."""

from __future__ import annotations

import typer

from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import ConfigOption, OutputOption, global_options
from mlcbuild.cli.output.terminal import OutputFormat

INFO_EXAMPLES = examples(
    "mlcbuild info                    paths and versions, models, quantizations, platforms, rules",
    "mlcbuild info --output json      the same for programs, rules with all their attributes",
)


def info(context: typer.Context, config: ConfigOption = "", output: OutputOption = OutputFormat.TEXT) -> None:
    """Show what this mlcbuild knows, and what it works with here.

    Outside a workspace, what belongs to one is left out.
    """
    from mlcbuild.cli.inspection.info import print_info

    options = global_options(context)
    print_info(options.directory, options.environment, configuration=config, output=output)
