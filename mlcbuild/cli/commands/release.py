"""`mlcbuild release`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import (
    ConfigOption,
    DiskCacheOption,
    NoRemoteOption,
    OutputOption,
    Patterns,
    RemoteOption,
    SetOption,
    global_options,
)
from mlcbuild.cli.output.terminal import OutputFormat

RELEASE_EXAMPLES = examples(
    "mlcbuild release //models:x-cpu --to dist/1.0 --key release.key",
    "mlcbuild release //models:all --to s3://releases/2.1 --key release.key",
    "mlcbuild release //models:all --to dist/1.0 --dry-run   what would be written",
)


def release(
    context: typer.Context,
    patterns: Patterns,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="DIR|s3://BUCKET/PREFIX",
            show_default=False,
            help="Where the release is written: a new folder, or a prefix of a bucket.",
        ),
    ],
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="FILE",
            show_default=False,
            help="The private key that signs: Ed25519 or ECDSA P-256, in PEM. Default: that of MLCBUILD_RELEASE_KEY.",
        ),
    ] = None,
    unsigned: Annotated[bool, typer.Option("--unsigned", help="Release without a signature.")] = False,
    version: Annotated[
        str, typer.Option("--version", metavar="V", show_default=False, help="The version of the release.")
    ] = "",
    name: Annotated[
        str,
        typer.Option("--name", metavar="NAME", show_default=False, help="Its name. Default: that of the workspace."),
    ] = "",
    builder: Annotated[
        str,
        typer.Option(
            "--builder",
            metavar="URI",
            show_default=False,
            help="What the provenance names as the builder, such as the address of a CI workflow.",
        ),
    ] = "",
    build: Annotated[
        bool, typer.Option("--build", help="Build first what has no cached result. Without it nothing runs.")
    ] = False,
    require_license: Annotated[
        bool, typer.Option("--require-license", help="Refuse models of which nothing says what their licence is.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Print what would be written, or what has no cached result.")
    ] = False,
    config: ConfigOption = "",
    overrides: SetOption = None,
    disk_cache: DiskCacheOption = None,
    remote: RemoteOption = "",
    no_remote: NoRemoteOption = False,
    output: OutputOption = OutputFormat.TEXT,
) -> int:
    """Write built targets as a release: files, SHA256SUMS, a bill of materials, and signed provenance.

    Everything comes from the disk cache or the remote cache. If an action would have to run, it is listed, nothing is
    written, and the exit code is 10. A release appears whole or not at all. An interrupted one is continued by the same
    command. Whoever has the public key checks it with `mlcbuild verify`.
    """
    from mlcbuild.cli.release.command import ReleaseOrder, make_and_write
    from mlcbuild.cli.release.gathering import ReleaseRequest
    from mlcbuild.cli.settings.remote import RemoteOptions

    request = ReleaseRequest(
        patterns=tuple(patterns),
        configuration=config,
        overrides=tuple(overrides or ()),
        name=name,
        version=version,
        builder=builder,
        requires_license=require_license,
        only_plans=dry_run,
        disk_cache=disk_cache,
        remote=RemoteOptions(address=remote, no_remote=no_remote),
    )
    order = ReleaseOrder(request=request, to=to, key=key, unsigned=unsigned, builds=build)
    return int(make_and_write(order, output, global_options(context)))
