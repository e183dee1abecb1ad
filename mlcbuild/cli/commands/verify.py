"""`mlcbuild verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import OutputOption, global_options
from mlcbuild.cli.output.terminal import OutputFormat

VERIFY_EXAMPLES = examples(
    "mlcbuild verify dist/1.0 --key release.pub",
    "mlcbuild verify s3://releases/2.1 --key release.pub --output json",
)


def verify(
    context: typer.Context,
    release: Annotated[str, typer.Argument(metavar="DIR|s3://BUCKET/PREFIX", show_default=False, help="The release.")],
    key: Annotated[
        Path,
        typer.Option(
            "--key", metavar="FILE", show_default=False, help="The public key of whoever released it, in PEM."
        ),
    ],
    output: OutputOption = OutputFormat.TEXT,
) -> int:
    """Check a release with a public key alone: its signature, and each file against what was signed.

    It needs no workspace, no cache and, for a folder, no network. Changed, missing and additional files are named, and
    the exit code is then 11.
    """
    from mlcbuild.cli.release.verifying import verify_and_print

    return int(verify_and_print(release, key, output, global_options(context)))
