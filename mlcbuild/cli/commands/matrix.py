"""`mlcbuild matrix`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlcbuild.cli.arguments.choices import MatrixOutput
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import (
    ConfigOption,
    DiskCacheOption,
    NoRemoteOption,
    Patterns,
    RemoteOption,
    SetOption,
    ShardOption,
    TimingsOption,
    global_options,
)
from mlcbuild.errors import UsageError

MATRIX_EXAMPLES = examples(
    "mlcbuild matrix //models/...                                what is built, cached, or would run",
    "mlcbuild matrix //models/... --would-run --output=github    a job for each cell that would run",
    "mlcbuild matrix //models/... --shards 4 --output=gitlab     four jobs of about equal time",
    "mlcbuild matrix //models/... --write-timings timings.json   what to split by",
)


def matrix(
    context: typer.Context,
    patterns: Patterns,
    config: ConfigOption = "",
    overrides: SetOption = None,
    would_run: Annotated[
        bool, typer.Option("--would-run", help="Take only targets of which a build would run actions.")
    ] = False,
    shard: ShardOption = "",
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards",
            metavar="N",
            min=1,
            max=1000,
            show_default=False,
            help="Split the targets into N parts, those of build --shard I/N; for github and gitlab a job each.",
        ),
    ] = None,
    timings: TimingsOption = None,
    write_timings: Annotated[
        Path | None,
        typer.Option(
            "--write-timings",
            metavar="FILE",
            show_default=False,
            help="Add the seconds that actions took here to FILE, and to those of --timings.",
        ),
    ] = None,
    disk_cache: DiskCacheOption = None,
    remote: RemoteOption = "",
    no_remote: NoRemoteOption = False,
    output: Annotated[
        MatrixOutput,
        typer.Option(
            "--output",
            metavar="text|json|github|gitlab",
            show_default=False,
            help="Grids, JSON, or jobs for GitHub Actions or a child pipeline of GitLab. Default: text.",
        ),
    ] = MatrixOutput.TEXT,
) -> None:
    """Show the state of each cell of matrices: built, cached, would run, failed or skipped.

    States are found by lookups; nothing runs. Targets that another matched target needs are left out: they are built
    with it.
    """
    if shard and shards:
        raise UsageError("--shard takes one part, and --shards shows all: give one of them")
    if timings and not (shard or shards or write_timings):
        raise UsageError("--timings splits targets into parts: give --shards or --shard as well")
    from mlcbuild.cli.matrix.command import MatrixRequest, print_matrix
    from mlcbuild.cli.settings.remote import RemoteOptions

    request = MatrixRequest(
        patterns=tuple(patterns),
        configuration=config,
        overrides=tuple(overrides or ()),
        disk_cache=disk_cache,
        remote=RemoteOptions(address=remote, no_remote=no_remote),
        shard=shard,
        shards=shards or 0,
        timings=tuple(timings or ()),
        would_run=would_run,
        write_timings=write_timings,
    )
    print_matrix(request, output, global_options(context))
