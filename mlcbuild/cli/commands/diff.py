"""`mlcbuild diff`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlcbuild.cli.arguments.completion import (
    complete_build,
    complete_configuration,
    complete_mnemonic,
    complete_pattern,
)
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

DIFF_EXAMPLES = examples(
    "mlcbuild diff //models:a //models:b                   two targets",
    "mlcbuild diff //models:a --since main                 a revision of Git, and now",
    "mlcbuild diff //models:a --since v1..v2               two revisions",
    "mlcbuild diff //models:a --build 1 --ir               the last build, and now, as text",
    "mlcbuild diff //models:a --against-config release     two configurations",
)


def diff(
    context: typer.Context,
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATTERN...",
            show_default=False,
            autocompletion=complete_pattern,
            help="Two targets to compare; with one of the options below, the targets to compare in both states.",
        ),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="REV",
            show_default=False,
            help="Compare a revision of Git with now; A..B compares revision A with B.",
        ),
    ] = "",
    build: Annotated[
        list[str] | None,
        typer.Option(
            "--build",
            metavar="N|ID",
            show_default=False,
            autocompletion=complete_build,
            help="Compare a recorded build with now; given twice, the first with the second.",
        ),
    ] = None,
    against_config: Annotated[
        str,
        typer.Option(
            "--against-config",
            metavar="NAME",
            show_default=False,
            autocompletion=complete_configuration,
            help="Compare the configuration NAME with that of --config, or the default one.",
        ),
    ] = "",
    config: ConfigOption = "",
    overrides: SetOption = None,
    mnemonic: Annotated[
        str,
        typer.Option(
            "--mnemonic",
            metavar="NAME",
            show_default=False,
            autocompletion=complete_mnemonic,
            help="Only actions of this kind.",
        ),
    ] = "",
    ir: Annotated[
        bool,
        typer.Option(
            "--ir",
            help="Print how the outputs of actions that differ by themselves, or of --mnemonic, differ as text.",
        ),
    ] = False,
    disk_cache: DiskCacheOption = None,
    remote: AskedRemoteOption = "",
    ask_remote: AskRemoteOption = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Compare two targets, revisions, builds or configurations stage by stage.

    Nothing runs. Actions are equal, differ by themselves (and why is told), follow others that differ, or are in one
    state alone. With --set alone the files as they are are compared with the values of --set. Unless asked to, it looks
    no results up in a remote cache; --ir fetches what it compares from it.
    """
    from mlcbuild.cli.diff.command import DiffRequest, print_differences, revisions
    from mlcbuild.cli.inspection.survey import SurveyRequest

    former, until = revisions(since)
    request = DiffRequest(
        patterns=tuple(patterns or ()),
        since=former,
        until=until,
        against_configuration=against_config,
        builds=tuple(build or ()),
        mnemonic=mnemonic,
        ir=ir,
        survey=SurveyRequest(
            configuration=config,
            overrides=tuple(overrides or ()),
            disk_cache=disk_cache,
            remote_address=remote,
            ask_remote=ask_remote,
        ),
    )
    print_differences(request, output, global_options(context))
