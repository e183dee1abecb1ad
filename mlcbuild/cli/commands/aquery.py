"""`mlcbuild aquery`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlcbuild.cli.arguments.completion import complete_pattern
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import (
    AskedRemoteOption,
    AskRemoteOption,
    ConfigOption,
    DiskCacheOption,
    OutputOption,
    SetOption,
    global_options,
)
from mlcbuild.cli.output.terminal import OutputFormat

AQUERY_EXAMPLES = examples(
    "mlcbuild aquery //models:smollm2-135m-cpu                the actions of a target",
    "mlcbuild aquery 'deps(//models:smollm2-135m-cpu)'        and those of all that it needs",
    "mlcbuild aquery 'mnemonic(\"^Phase\", //models/...)' --output json",
    "mlcbuild aquery 'inputs(\"config.json\", //models/...)'   the actions that read such a file",
)


def aquery(
    context: typer.Context,
    expression: Annotated[
        str,
        typer.Argument(
            metavar="EXPRESSION",
            show_default=False,
            autocompletion=complete_pattern,
            help="As of `mlcbuild query`, with filters around it; quote it.",
        ),
    ],
    config: ConfigOption = "",
    overrides: SetOption = None,
    disk_cache: DiskCacheOption = None,
    remote: AskedRemoteOption = "",
    ask_remote: AskRemoteOption = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Show the actions of targets: keys, inputs, outputs, parameters, toolchains.

    Nothing runs. The actions of kernels come from the cached manifest; if there is none, a note says that they are not
    known yet.

    \b
    Filters are outermost:
      mnemonic(regex, x)   the actions of the targets x whose mnemonic matches
      inputs(regex, x)     the actions with an input whose path or maker matches
      outputs(regex, x)    the actions with an output whose path matches
    """
    from mlcbuild.cli.inspection.aquery import print_actions
    from mlcbuild.cli.inspection.survey import SurveyRequest

    request = SurveyRequest(
        configuration=config,
        overrides=tuple(overrides or ()),
        disk_cache=disk_cache,
        remote_address=remote,
        ask_remote=ask_remote,
    )
    print_actions(expression, request, output, global_options(context))
