"""`mlcbuild compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlcbuild.cli.arguments.choices import ProgressChoice
from mlcbuild.cli.arguments.completion import complete_pattern
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import (
    ConfigOption,
    DiskCacheOption,
    JobsOption,
    NoRemoteOption,
    OutputOption,
    ProgressOption,
    RemoteOption,
    SetOption,
    global_options,
)
from mlcbuild.cli.output.terminal import OutputFormat

COMPARE_EXAMPLES = examples(
    "mlcbuild compare //models:mlp-compared",
    "mlcbuild compare //models:mlp-compared --cold --svg chart.svg",
    "mlcbuild compare //models:mlp-compared --output json",
)


def compare(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="LABEL",
            show_default=False,
            autocompletion=complete_pattern,
            help="A compile_comparison, //pkg:name or :name.",
        ),
    ],
    cold: Annotated[
        bool, typer.Option("--cold", help="Compile everything again, one after the other, to time it.")
    ] = False,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", show_default=False, help="Write a chart of the seconds a call."),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", show_default=False, help="Write the tables as Markdown."),
    ] = None,
    config: ConfigOption = "",
    overrides: SetOption = None,
    jobs: JobsOption = None,
    disk_cache: DiskCacheOption = None,
    remote: RemoteOption = "",
    no_remote: NoRemoteOption = False,
    progress: ProgressOption = ProgressChoice.AUTO,
    output: OutputOption = OutputFormat.TEXT,
) -> int:
    """Compare what several compilers made of one model, on this machine.

    Builds the target first, which measures what has not been measured here. Each build is run by its own runtime, in
    a process of its own, one at a time; the median of rounds in turn counts.
    """
    from mlcbuild.cli.build.request import BuildRequest
    from mlcbuild.cli.compare.command import CompareOptions
    from mlcbuild.cli.compare.command import compare as run

    request = BuildRequest.of_options(
        [target],
        config=config,
        overrides=overrides,
        jobs=jobs,
        disk_cache=disk_cache,
        remote=remote,
        no_remote=no_remote,
        executor=None,
        ray_address="",
        progress=progress,
    )
    given = CompareOptions(cold=cold, svg=svg, markdown=markdown, output=output)
    return int(run(target, request, given, global_options(context)))
