"""`mlcbuild info`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import ConfigOption, OutputOption, global_options
from mlcbuild.cli.output.terminal import OutputFormat

INFO_EXAMPLES = examples(
    "mlcbuild info                    paths and versions, models, quantizations, platforms, rules",
    "mlcbuild info --legal            which family, quantization and kind of platform go together",
    "mlcbuild info --output json      for programs, with all attributes of the rules",
)


def info(
    context: typer.Context,
    config: ConfigOption = "",
    legal: Annotated[
        bool, typer.Option("--legal", help="Show which model family, quantization and platform kind go together.")
    ] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> int:
    """Show versions, paths, and what can be built here.

    Outside a workspace the facts about a workspace are left out. Of a workspace with errors it shows what has none, and
    the errors.
    """
    from mlcbuild.cli.exit_codes import ExitCode
    from mlcbuild.cli.inspection.info import print_info
    from mlcbuild.cli.inspection.legality import print_legality

    if legal:
        print_legality(output)
        return int(ExitCode.OK)
    return int(print_info(global_options(context), configuration=config, output=output))
