"""`mlcbuild log …`: what the last builds did."""

from __future__ import annotations

from typing import Annotated

import typer

from mlcbuild.cli.arguments.completion import complete_action, complete_build
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import DiskCacheOption, OutputOption, global_options
from mlcbuild.cli.output.terminal import OutputFormat

LOG_EXAMPLES = examples(
    "mlcbuild log                           the last builds",
    "mlcbuild log what-ran --slowest        what the last one ran",
    "mlcbuild log critical-path --build 2   what the one before had to wait for",
    "mlcbuild log show '//models:a Export'  everything of one action",
)
LOG_STANDS_ALONE = True

BuildOption = Annotated[
    str,
    typer.Option(
        "--build",
        metavar="N|ID",
        show_default=False,
        autocompletion=complete_build,
        help="1 for the last build, 2 for the one before, or the first digits of an invocation.",
    ),
]


def log(context: typer.Context, output: OutputOption = OutputFormat.TEXT) -> None:
    """List the last builds of this workspace, and tell what they did.

    The last ten are remembered, but for those that had nothing to do.
    """
    if context.invoked_subcommand is None:
        from mlcbuild.cli.log.listings import print_builds

        print_builds(output, global_options(context))


def what_ran(
    context: typer.Context,
    build: BuildOption = "1",
    failed: Annotated[bool, typer.Option("--failed", help="Only what failed.")] = False,
    mnemonic: Annotated[
        str, typer.Option("--mnemonic", metavar="NAME", show_default=False, help="Only actions of this kind.")
    ] = "",
    slowest: Annotated[bool, typer.Option("--slowest", help="The slowest first.")] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """List the actions that ran: how long, where, and why.

    Seconds are those of the run: with fetching inputs and storing outputs, without waiting for a worker.
    """
    from mlcbuild.cli.log.listings import print_what_ran

    print_what_ran(
        build, failed=failed, mnemonic=mnemonic, slowest=slowest, output=output, options=global_options(context)
    )


def critical_path(context: typer.Context, build: BuildOption = "1", output: OutputOption = OutputFormat.TEXT) -> None:
    """Show the chain of actions that took longest, and what more workers could do.

    Slack is how much longer an action beside the chain could have taken before the build had to wait for it.
    """
    from mlcbuild.cli.log.listings import print_critical_path

    print_critical_path(build, output, global_options(context))


def show(
    context: typer.Context,
    action: Annotated[
        str,
        typer.Argument(
            metavar="ACTION|KEY",
            show_default=False,
            autocompletion=complete_action,
            help="An action's name, a part of it that no other has, or the first digits of its key.",
        ),
    ],
    build: Annotated[
        str,
        typer.Option(
            "--build",
            metavar="N|ID",
            show_default=False,
            autocompletion=complete_build,
            help="Only in that build. Default: the newest that has such an action.",
        ),
    ] = "",
    disk_cache: DiskCacheOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Show everything of one action: times, place, log, and what its key was made of.

    Where it ran because something had changed, each changed part is shown with what it was before.
    """
    from mlcbuild.cli.log.action import print_action

    print_action(action, build, disk_cache=disk_cache, output=output, options=global_options(context))


LOG_COMMANDS = (
    (what_ran, examples("mlcbuild log what-ran --slowest", "mlcbuild log what-ran --failed --build 2")),
    (critical_path, examples("mlcbuild log critical-path")),
    (show, examples("mlcbuild log show '//models:smollm2-135m-cpu Export'", "mlcbuild log show 3f2a91")),
)
