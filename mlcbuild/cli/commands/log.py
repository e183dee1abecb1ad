"""`mlcbuild log …`: shows the last builds."""

from __future__ import annotations

from typing import Annotated

import typer

from mlcbuild.cli.arguments.completion import complete_build, complete_pattern
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import OutputOption, global_options
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.errors import UsageError

LOG_EXAMPLES = examples(
    "mlcbuild log                           the last builds",
    "mlcbuild log --target //models:a       how long it took in each of them, and what was cached",
    "mlcbuild log what-ran --slowest        what the last one ran",
    "mlcbuild log critical-path --build 2   the longest chain of the build before it",
)
LOG_STANDS_ALONE = True

BuildOption = Annotated[
    str,
    typer.Option(
        "--build",
        metavar="N|ID",
        show_default=False,
        autocompletion=complete_build,
        help="1 for the last build that did something, 2 for the one before, or the first digits of an invocation.",
    ),
]


def log(
    context: typer.Context,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=0,
            show_default=False,
            help="List N builds, or with 0 all. Default: 20, and in JSON all.",
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="PATTERN",
            show_default=False,
            autocompletion=complete_pattern,
            help="What each build did of these targets: seconds, actions that ran, cached ones.",
        ),
    ] = "",
    failed: Annotated[bool, typer.Option("--failed", help="Only builds that did not succeed.")] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """List the builds of this workspace, or show what one of them did.

    The last 500 builds are kept, in at most 64 MiB. Builds that had nothing to do are listed without a number.
    `mlcbuild show --build` shows an action of one.
    """
    if context.invoked_subcommand is not None:
        if limit is not None or target or failed:
            name = context.invoked_subcommand
            raise UsageError(f"--limit, --target and --failed list builds; options of {name} come after its name")
        return
    if target:
        from mlcbuild.cli.log.target_history import print_target_history

        print_target_history(target, output, global_options(context), limit=limit, failed=failed)
    else:
        from mlcbuild.cli.log.build_list import print_builds

        print_builds(output, global_options(context), limit=limit, failed=failed)


def what_ran(
    context: typer.Context,
    build: BuildOption = "1",
    failed: Annotated[bool, typer.Option("--failed", help="Only failed actions.")] = False,
    mnemonic: Annotated[
        str, typer.Option("--mnemonic", metavar="NAME", show_default=False, help="Only actions of this kind.")
    ] = "",
    slowest: Annotated[bool, typer.Option("--slowest", help="The slowest first.")] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """List the actions that ran: how long, where, and why.

    The seconds of a run include fetching inputs and storing outputs, but not waiting for a worker.
    """
    from mlcbuild.cli.log.listings import print_what_ran

    print_what_ran(
        build, failed=failed, mnemonic=mnemonic, slowest=slowest, output=output, options=global_options(context)
    )


def critical_path(context: typer.Context, build: BuildOption = "1", output: OutputOption = OutputFormat.TEXT) -> None:
    """Show the chain of actions that took longest, and whether more workers would help.

    Slack is how much longer an action could have taken without making the build longer.
    """
    from mlcbuild.cli.log.listings import print_critical_path

    print_critical_path(build, output, global_options(context))


LOG_COMMANDS = (
    (what_ran, examples("mlcbuild log what-ran --slowest", "mlcbuild log what-ran --failed --build 2")),
    (critical_path, examples("mlcbuild log critical-path")),
)
