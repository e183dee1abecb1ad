"""`mlcbuild fetch`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlcbuild.cli.arguments.choices import ProgressChoice
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import (
    ConfigOption,
    DiskCacheOption,
    JobsOption,
    KeepGoingOption,
    NoRemoteOption,
    Patterns,
    ProgressOption,
    QuietOption,
    RemoteOption,
    RemoteUploadOption,
    global_options,
)

FETCH_EXAMPLES = examples(
    "mlcbuild fetch //models/...              all external files that //models/... needs",
    "mlcbuild fetch :weights --update         write the digest of the current file into BUILD.toml",
)


def fetch(
    context: typer.Context,
    patterns: Patterns,
    update: Annotated[
        bool,
        typer.Option("--update", help='Write `sha256 = "…"` of the current files into the BUILD.toml files.'),
    ] = False,
    config: ConfigOption = "",
    jobs: JobsOption = None,
    keep_going: KeepGoingOption = False,
    disk_cache: DiskCacheOption = None,
    remote: RemoteOption = "",
    no_remote: NoRemoteOption = False,
    remote_upload: RemoteUploadOption = None,
    progress: ProgressOption = ProgressChoice.AUTO,
    quiet: QuietOption = False,
) -> int:
    """Fetch the files that targets need from outside the workspace.

    Files are kept in the disk cache; those that the remote cache has come from there. A later build of the same
    targets does not download them again. --update downloads the files, computes their digests and writes them as
    pins; nothing else in a BUILD.toml changes.
    """
    options = global_options(context)
    if update:
        from mlcbuild.cli.fetch.pin_update import update_pins

        update_pins(tuple(patterns), config, options)
        return 0
    from mlcbuild.cli.build.request import BuildRequest
    from mlcbuild.cli.build.session import run_build
    from mlcbuild.cli.settings.remote import RemoteOptions

    request = BuildRequest(
        patterns=tuple(patterns),
        configuration=config,
        jobs=jobs,
        keep_going=keep_going,
        disk_cache=disk_cache,
        remote=RemoteOptions(address=remote, upload=remote_upload or "", no_remote=no_remote),
        fetch_only=True,
        progress=ProgressChoice.QUIET if quiet else progress,
    )
    outcome = run_build(request, options)
    for path in outcome.paths:
        print(path)
    return int(outcome.exit_code)
