"""`mlcbuild clean`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import global_options

CLEAN_EXAMPLES = examples(
    "mlcbuild clean              outputs, and what the last build knew",
    "mlcbuild clean --expunge    logs and everything else that is local to this workspace, too",
)


def clean(
    context: typer.Context,
    expunge: Annotated[
        bool, typer.Option("--expunge", help="Remove all of .mlcbuild, logs and tracebacks too.")
    ] = False,
) -> None:
    """Remove outputs and local state of this workspace.

    Removes mlcbuild-out/ and what the last build knew. The disk cache stays, as other workspaces use it: a build
    after this finds its results there. It is a folder like any other; `mlcbuild info` says where.
    """
    from mlcbuild.cli.workspace.cleaning import clean_workspace

    clean_workspace(global_options(context).directory, expunge=expunge)
