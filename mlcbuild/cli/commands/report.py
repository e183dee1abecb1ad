"""`mlcbuild report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlcbuild.cli.arguments.completion import complete_build
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import DiskCacheOption, global_options

REPORT_EXAMPLES = examples(
    "mlcbuild report                            a page about the last build",
    "mlcbuild report 2 --compare 5              the build before it, compared with the fifth last",
    "mlcbuild report --events ci.jsonl          a build of another machine",
    "mlcbuild report --to artifacts/build.html  where a CI job keeps its files",
)


def report(
    context: typer.Context,
    build: Annotated[
        str,
        typer.Argument(
            metavar="[N|ID]",
            show_default=False,
            autocompletion=complete_build,
            help="1 for the last build, 2 for the one before, or the first digits of an invocation. Default: 1.",
        ),
    ] = "1",
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FILE",
            show_default=False,
            help="Where to write the page; - is standard output. Default: .mlcbuild/report.html, or with --events the "
            "name of that file with .html.",
        ),
    ] = None,
    compare: Annotated[
        str,
        typer.Option(
            "--compare",
            metavar="N|ID|FILE|none",
            show_default=False,
            autocompletion=complete_build,
            help="The build to compare with: a recorded one, or a file of events. Default: the last build of the same "
            "targets before it.",
        ),
    ] = "",
    events: Annotated[
        Path | None,
        typer.Option(
            "--events",
            metavar="FILE",
            show_default=False,
            help="Show the build of this file, which `build --events` wrote, here or on another machine.",
        ),
    ] = None,
    disk_cache: DiskCacheOption = None,
) -> None:
    """Write one HTML file that shows a build, for a browser: it needs no network and no other file.

    The page has a timeline of workers, the critical path, what caches answered, targets by matrix axes, and each
    action's inputs, outputs, log and reason. Inputs, outputs and logs come from the disk cache, as far as it has them.
    """
    from mlcbuild.cli.report_page.command import ReportRequest, write_report

    request = ReportRequest(build=build, events=events, compare=compare, to=to, disk_cache=disk_cache)
    write_report(request, global_options(context))
