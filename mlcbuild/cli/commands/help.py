"""`mlcbuild help`."""

from __future__ import annotations

import contextlib
import io
from typing import Annotated

import typer

from mlcbuild.cli.arguments.completion import complete_topic
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import OutputOption, global_options
from mlcbuild.cli.output.terminal import OutputFormat

HELP_EXAMPLES = examples(
    "mlcbuild help                lists the topics",
    "mlcbuild help patterns       which targets a pattern names",
    "mlcbuild help exit-codes     what exit codes mean",
    "mlcbuild help build          the options of a command, as `mlcbuild build --help`",
)


def help(
    context: typer.Context,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="[TOPIC]", show_default=False, autocompletion=complete_topic, help="A topic, or a command."
        ),
    ] = "",
    output: OutputOption = OutputFormat.TEXT,
) -> int:
    """Show a text of the documentation, or list the texts.

    They are sections of the pages that are also on the documentation's site, and need no network.
    """
    from mlcbuild.cli.help.command import print_topic, print_topics
    from mlcbuild.cli.help.topics import topics
    from mlcbuild.cli.main import COMMANDS, main
    from mlcbuild.cli.output.json_output import print_json

    if not topic:
        print_topics(output, global_options(context))
    elif topic in COMMANDS and topic not in topics():
        if output is OutputFormat.TEXT:
            return main([topic, "--help"])
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            main([topic, "--help"])
        print_json({"topic": topic, "text": shown.getvalue()})
    else:
        print_topic(topic, output, global_options(context))
    return 0
