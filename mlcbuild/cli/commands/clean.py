"""`mlcbuild clean`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import global_options

CLEAN_EXAMPLES = examples(
    "mlcbuild clean              outputs and state of the last build",
    "mlcbuild clean --expunge    also logs and all other local state of this workspace",
)


def clean(
    context: typer.Context,
    expunge: Annotated[
        bool, typer.Option("--expunge", help="Remove all of .mlcbuild/, including logs and tracebacks.")
    ] = False,
) -> None:
    """Remove outputs and local state of this workspace.

    Removes mlcbuild-out/ and the state of the last build. The disk cache stays, because other workspaces share it;
    the next build finds its results there. `mlcbuild info` shows its folder.
    """
    from mlcbuild.cli.workspace.cleaning import clean_workspace

    clean_workspace(global_options(context).directory, expunge=expunge)
