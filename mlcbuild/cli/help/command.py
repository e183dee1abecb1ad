"""Shows a topic, the list of topics, or the options of a command."""

from __future__ import annotations

import sys

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.help.topics import Topic, topics
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat, terminal_size
from mlcbuild.cli.output.text import COLUMNS
from mlcbuild.errors import UsageError
from mlcbuild.suggestions import did_you_mean

_NARROWEST = 40


def print_topics(output: OutputFormat, options: GlobalOptions) -> None:
    """List the topics: those of a section first, then whole pages."""
    known = topics()
    if output is OutputFormat.JSON:
        print_json({"topics": [_document(topic) for topic in known.values()]})
        return
    style = options.style(sys.stdout)
    width = max(map(len, known))
    print(
        "`mlcbuild help TOPIC` shows one of these texts,\nand `mlcbuild COMMAND --help` shows the options of a command."
    )
    for title, is_whole_page in (("Topics", False), ("Whole pages", True)):
        print(f"\n{style.bold(title)}")
        for topic in known.values():
            if topic.is_whole_page == is_whole_page:
                print(f"  {topic.name:{width}}  {topic.summary}")


def print_topic(name: str, output: OutputFormat, options: GlobalOptions) -> None:
    """Show the topic. Raises UsageError."""
    from mlcbuild.cli.main import COMMANDS

    known = topics()
    topic = known.get(name.lower())
    if topic is None:
        guess = did_you_mean(name, [*known, *COMMANDS])
        raise UsageError(f'no topic "{name}"', advice=(*filter(None, [guess]), "`mlcbuild help` lists the topics"))
    if output is OutputFormat.JSON:
        print_json({**_document(topic), "text": topic.text})
        return
    from mlcbuild.cli.help.plain_text import plain_text

    columns, _ = terminal_size(sys.stdout)
    width = max(_NARROWEST, min(columns, COLUMNS))
    print(plain_text(topic, known, width=width, is_colored=options.style(sys.stdout).enabled), end="")
    if topic.name in COMMANDS:
        print(f"\n`mlcbuild {topic.name} --help` shows the options of this command.")


def _document(topic: Topic) -> dict[str, object]:
    return {"topic": topic.name, "summary": topic.summary, "page": topic.page, "is_whole_page": topic.is_whole_page}
