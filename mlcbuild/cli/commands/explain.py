"""`mlcbuild explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlcbuild.cli.arguments.completion import complete_build
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import ConfigOption, DiskCacheOption, OutputOption, Patterns, global_options
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
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Explain why actions would run, or ran: the file, parameter, toolchain, function or kernel that changed.

    Nothing runs. If nothing would run, the last build that ran actions of these targets is explained. Results of a
    remote cache are not looked up: an action that "would run" may have one there.
    """
    from mlcbuild.cli.explain.command import ExplainRequest, explain_targets

    request = ExplainRequest(
        patterns=tuple(patterns), configuration=config, build=build, against=against, disk_cache=disk_cache
    )
    explain_targets(request, output, global_options(context))
