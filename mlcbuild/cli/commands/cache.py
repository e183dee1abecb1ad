"""`mlcbuild cache …`: the disk cache, and transfers between it and a remote cache."""

from __future__ import annotations

from typing import Annotated

import typer

from mlcbuild.cli.arguments.completion import complete_pattern
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import (
    ConfigOption,
    DiskCacheOption,
    OutputOption,
    Patterns,
    RemoteOption,
    global_options,
)
from mlcbuild.cli.output.terminal import OutputFormat

CACHE_EXAMPLES = examples(
    "mlcbuild cache stats",
    "mlcbuild cache gc --max-size 50G --max-age 30d",
    "mlcbuild cache verify",
    "mlcbuild cache rm //models:smollm2-135m-cpu",
    "mlcbuild cache pull //models/...",
)

MaxSizeOption = Annotated[
    str,
    typer.Option(
        "--max-size", metavar="SIZE", show_default=False, help="Keep at most SIZE on the disk: 500M, 50G, 50GiB."
    ),
]
MaxAgeOption = Annotated[
    str,
    typer.Option("--max-age", metavar="AGE", show_default=False, help="Keep results used within AGE: 12h, 30d, 2w."),
]
TransfersOption = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", min=1, show_default=False, help="Move N files at once."),
]


def cache() -> None:
    """Manage the disk cache, and move results to and from a remote cache.

    The disk cache holds the results of all workspaces.
    """


def stats(
    context: typer.Context,
    max_size: MaxSizeOption = "",
    max_age: MaxAgeOption = "",
    disk_cache: DiskCacheOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Show what the disk cache holds, and how long ago it was used.

    With limits, also show what a gc with these limits would remove.
    """
    from mlcbuild.cache.eviction import Limits
    from mlcbuild.cli.cache.stats import print_stats
    from mlcbuild.cli.settings.cache_limits import read_limits
    from mlcbuild.errors import WorkspaceError

    options = global_options(context)
    try:
        limits = read_limits(max_size, max_age, options.environment)
    except WorkspaceError:
        # What the cache holds does not depend on the user's settings.
        print_stats(disk_cache, Limits(), output, options)
        raise
    print_stats(disk_cache, limits, output, options)


def gc(
    context: typer.Context,
    max_size: MaxSizeOption = "",
    max_age: MaxAgeOption = "",
    disk_cache: DiskCacheOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Remove the least recently used results until the cache is within the limits.

    Builds may run meanwhile; what they use is not removed. Limits are the options, the variables
    MLCBUILD_CACHE_MAX_SIZE and MLCBUILD_CACHE_MAX_AGE, or [cache] of your settings. Without any limit only damaged
    results and leftovers of killed builds are removed.
    """
    from mlcbuild.cli.cache.maintenance import collect_garbage
    from mlcbuild.cli.settings.cache_limits import read_limits

    options = global_options(context)
    collect_garbage(disk_cache, read_limits(max_size, max_age, options.environment), output, options)


def verify(
    context: typer.Context,
    disk_cache: DiskCacheOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> int:
    """Read everything in the disk cache and check it.

    Damaged files are moved to quarantine, and a build that needs them makes them again. The exit code is 36 if there
    are any.
    """
    from mlcbuild.cli.cache.maintenance import verify_cache

    return int(verify_cache(disk_cache, output, global_options(context)))


def rm(
    context: typer.Context,
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY|LABEL...",
            show_default=False,
            autocompletion=complete_pattern,
            help="The first digits of an action's key, or a target for all its actions.",
        ),
    ],
    disk_cache: DiskCacheOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Remove results, so that their actions run again.

    For a target these are the results of its last build in this workspace. Blobs stay until a gc removes them.
    """
    from mlcbuild.cli.cache.removal import remove_results

    remove_results(tuple(results), disk_cache, output, global_options(context))


def pull(
    context: typer.Context,
    patterns: Patterns,
    config: ConfigOption = "",
    jobs: TransfersOption = None,
    disk_cache: DiskCacheOption = None,
    remote: RemoteOption = "",
    output: OutputOption = OutputFormat.TEXT,
) -> int:
    """Copy results of targets with all their files from the remote cache to this disk.

    It looks up every result that a build of the targets needs, and runs nothing. Afterwards that build needs no
    network. If an action has no result, the others are copied all the same, and the exit code is 1.
    """
    from mlcbuild.cli.cache.pull import pull_results
    from mlcbuild.cli.cache.transfer import Transfer

    transfer = Transfer(patterns=tuple(patterns), configuration=config, jobs=jobs, disk_cache=disk_cache, remote=remote)
    return int(pull_results(transfer, output, global_options(context)))


def push(
    context: typer.Context,
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATTERN...]",
            show_default=False,
            autocompletion=complete_pattern,
            help="Targets, as for a build.",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Send all results in the disk cache, also those of other workspaces.")
    ] = False,
    config: ConfigOption = "",
    jobs: TransfersOption = None,
    disk_cache: DiskCacheOption = None,
    remote: RemoteOption = "",
    output: OutputOption = OutputFormat.TEXT,
) -> int:
    """Copy results of targets with all their files from this disk to the remote cache.

    It sends every result that a build of the targets finds here, and runs nothing. The settings must allow this
    machine to write to the remote. If an action has no result here, the others are sent all the same, and the exit
    code is 1.
    """
    from mlcbuild.cli.cache.push import push_results
    from mlcbuild.cli.cache.transfer import Transfer

    transfer = Transfer(
        patterns=tuple(patterns or ()), configuration=config, jobs=jobs, disk_cache=disk_cache, remote=remote
    )
    return int(push_results(transfer, output, global_options(context), everything=everything))


CACHE_COMMANDS = (
    (stats, examples("mlcbuild cache stats", "mlcbuild cache stats --max-size 50G      also what a gc would remove")),
    (gc, examples("mlcbuild cache gc --max-size 50G", "mlcbuild cache gc --max-age 30d --max-size 200G")),
    (verify, examples("mlcbuild cache verify")),
    (rm, examples("mlcbuild cache rm 3f2a91", "mlcbuild cache rm //models:smollm2-135m-cpu")),
    (pull, examples("mlcbuild cache pull //models/...", "mlcbuild cache pull :all --remote s3://builds/mlcbuild")),
    (push, examples("mlcbuild cache push //models/...", "mlcbuild cache push --all")),
)
