"""`mlcbuild affected`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlcbuild.cli.arguments.choices import AffectedOutput
from mlcbuild.cli.arguments.completion import complete_pattern
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import (
    AskedRemoteOption,
    AskRemoteOption,
    ConfigOption,
    DiskCacheOption,
    SetOption,
    global_options,
)

AFFECTED_EXAMPLES = examples(
    "mlcbuild affected --since main                   the targets that a branch affects",
    "mlcbuild affected --since HEAD~1 --output text   and why",
    "mlcbuild build $(mlcbuild affected --since main //models/...)",
)


def affected(
    context: typer.Context,
    since: Annotated[
        str,
        typer.Option(
            "--since", metavar="REV", show_default=False, help="A commit, a branch or a tag of Git to compare with."
        ),
    ],
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATTERN...",
            show_default=False,
            autocompletion=complete_pattern,
            help="Targets to look at. Default: //...",
        ),
    ] = None,
    config: ConfigOption = "",
    overrides: SetOption = None,
    disk_cache: DiskCacheOption = None,
    remote: AskedRemoteOption = "",
    ask_remote: AskRemoteOption = False,
    output: Annotated[
        AffectedOutput,
        typer.Option(
            "--output",
            metavar="label|text|json",
            show_default=False,
            help="Labels, labels with reasons, or JSON. Default: label.",
        ),
    ] = AffectedOutput.LABEL,
) -> None:
    """List targets that differ from those of a revision: by files, parameters, code, or by what they need.

    Nothing runs. Changes that are not committed count. Files that Git ignores count as unchanged. If a cache that is
    asked has the results of both states, a change that led to the same bytes affects nothing more.
    """
    from mlcbuild.cli.affected.command import print_affected
    from mlcbuild.cli.inspection.survey import SurveyRequest

    request = SurveyRequest(
        configuration=config,
        overrides=tuple(overrides or ()),
        disk_cache=disk_cache,
        remote_address=remote,
        ask_remote=ask_remote,
    )
    print_affected(patterns or (), since, request, output, global_options(context))
