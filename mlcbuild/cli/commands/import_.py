"""`mlcbuild import`. The module's and the function's names end in `_`, because `import` is a word of Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import OutputOption, global_options
from mlcbuild.cli.output.terminal import OutputFormat

IMPORT_EXAMPLES = examples(
    "mlcbuild import mlc-package-config.json         the models of an app",
    "mlcbuild import model-delivery-config.json      a spec of mlc_llm.cli.delivery or lib_delivery",
    "mlcbuild -C new import spec.json --output json  for programs: what was not mapped, with places",
)


def import_(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="mlc-package-config.json, or a spec of lib_delivery or delivery.",
        ),
    ],
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Write a BUILD.toml for a specification file of MLC-LLM.

    Tasks become matrices. Values that have no counterpart are listed with their place in the file, and targets that
    cannot be built yet are written as comments with the reason. An existing BUILD.toml is never changed.
    """
    from mlcbuild.cli.init.importing import import_spec

    import_spec(file, global_options(context), start=Path.cwd(), output=output)
