"""`mlcbuild shutdown`."""

from __future__ import annotations

import typer

from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import global_options

SHUTDOWN_EXAMPLES = examples("mlcbuild shutdown      frees the memory of warm workers")


def shutdown(context: typer.Context) -> None:
    """End the workers that builds with --workers=warm have left running.

    An action that runs in a worker finishes first.
    """
    from mlcbuild.cli.build.executors import worker_pool
    from mlcbuild.execution.server_pool import shut_down

    count = shut_down(worker_pool(global_options(context).environment))
    print(f"{count} warm worker{'' if count == 1 else 's'} ended" if count else "no warm workers")
