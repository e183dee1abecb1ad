"""`mlcbuild explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlcbuild.cli.arguments.completion import complete_build
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import (
    AskedRemoteOption,
    AskRemoteOption,
    ConfigOption,
    DiskCacheOption,
    OutputOption,
    Patterns,
    SetOption,
    global_options,
)
from mlcbuild.cli.output.terminal import OutputFormat

EXPLAIN_EXAMPLES = examples(
    "mlcbuild explain //models:smollm2-135m-cpu             why its actions would run, or did",
    "mlcbuild explain //models:smollm2-135m-cpu --build 2   why they ran in the build before the last",
    "mlcbuild explain //models/... --against ci.json        why another machine's results are not used",
)


def explain(
    context: typer.Context,
    patterns: Patterns,
    config: ConfigOption = "",
    overrides: SetOption = None,
    build: Annotated[
        str,
        typer.Option(
            "--build",
            metavar="N|ID",
            show_default=False,
            autocompletion=complete_build,
            help="Explain what ran in this build: 1 for the last, 2 for the one before, or the first digits of its "
            "invocation.",
        ),
    ] = "",
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="REPORT",
            show_default=False,
            help="Explain why keys differ from those of another machine: its build report, or its "
            "`aquery --output json`.",
        ),
    ] = None,
    disk_cache: DiskCacheOption = None,
    remote: AskedRemoteOption = "",
    ask_remote: AskRemoteOption = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Explain why actions would run, or ran: the file, parameter, toolchain, function or kernel that changed.

    Nothing runs. If nothing would run, the last build that ran actions of these targets is explained. Unless asked to,
    it looks no results up in a remote cache: an action that "would run" may have one there.
    """
    from mlcbuild.cli.explain.command import ExplainRequest, explain_targets
    from mlcbuild.cli.inspection.survey import SurveyRequest

    survey = SurveyRequest(
        configuration=config,
        overrides=tuple(overrides or ()),
        disk_cache=disk_cache,
        remote_address=remote,
        ask_remote=ask_remote,
    )
    request = ExplainRequest(patterns=tuple(patterns), build=build, against=against, survey=survey)
    explain_targets(request, output, global_options(context))
