"""`mlcbuild help`: every topic is a text for a terminal, and what messages and pages name is there."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlcbuild.cli.arguments.completion import complete_topic
from mlcbuild.cli.help.plain_text import plain_text
from mlcbuild.cli.help.topics import PAGES, Topic, topics
from mlcbuild.cli.main import COMMANDS, main

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]

PROJECT = Path(__file__).parents[2]
TOPICS = topics()
_CITED = re.compile(r"mlcbuild help ([a-z][a-z0-9-]*)")

PAGE = """\
<!-- world: empty -->

<!-- help: tea: how tea is made -->
# Tea

Tea needs water, see [water.md](water.md), [Bazel's page](https://bazel.build) and [below](#leaves-of-tea).
`mlcbuild build` makes none.

<!-- not run: there is no kettle -->
```sh
# no heading
kettle --on --for-a-long-time --with-more-water-than-is-needed-for-a-single-cup-of-tea [a](b.md)
```

| leaf | minutes |
|---|---|
| `green` | 2 |
| `black`, or `red` | 4, and then some more minutes so that this row of the table does not fit into one line |

<!-- help: leaves: which leaves there are -->
## Leaves of tea

- green
- black

### Old leaves

Have [water](water.md#cold).

## Cups
"""
WATER = """\
<!-- help: water: all of water -->
# Water

<!-- help: cold-water: cold water -->
## Cold

It is cold.
"""


@pytest.fixture
def known(tmp_path: Path) -> dict[str, Topic]:
    (tmp_path / "tea.md").write_text(PAGE)
    (tmp_path / "water.md").write_text(WATER)
    return topics(tmp_path)


@pytest.mark.parametrize("is_colored", [False, True])
def test_a_page_as_text(is_colored: bool, known: dict[str, Topic], snapshot: Snapshot) -> None:
    text = plain_text(known["tea"], known, width=80, is_colored=is_colored)
    snapshot(f"help-topic{'-colour' if is_colored else ''}", text)


def test_a_topic_ends_where_its_section_does(known: dict[str, Topic]) -> None:
    assert known["leaves"].text.startswith("## Leaves of tea\n")
    assert known["leaves"].text.endswith("Have [water](water.md#cold).\n")
    assert plain_text(known["leaves"], known, width=80, is_colored=False).endswith(
        "Have water (`mlcbuild help cold-water`).\n"
    )
    assert "# no heading" in known["tea"].text
    assert "Cups" in known["tea"].text


def test_topics_are_listed(known: dict[str, Topic], capsys: Capture) -> None:
    assert main(["help"]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert re.findall(r"^  ([a-z0-9-]+) ", shown, re.MULTILINE) == sorted(
        TOPICS, key=lambda name: (TOPICS[name].is_whole_page, name)
    )
    assert main(["help", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [topic["topic"] for topic in document["topics"]] == sorted(TOPICS)


@pytest.mark.parametrize("name", TOPICS)
def test_every_topic_is_a_text_of_eighty_columns(name: str, capsys: Capture) -> None:
    assert main(["help", name]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] != ""
    # Code, and words that have no place to be broken at, are as they are.
    long = [line for line in shown.splitlines() if len(line) > 80 and not line.startswith("    ")]
    assert [line for line in long if " " in line.strip()] == []
    assert ("<!--" in shown) == ("`<!--" in TOPICS[name].text), "a comment that is no comment on comments"
    assert not re.search(r"\]\([^)]*\.md", shown)
    assert main(["help", name, "--output=json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == TOPICS[name].text


@pytest.mark.parametrize("name", TOPICS)
def test_code_keeps_its_backticks_over_the_ends_of_lines(name: str, capsys: Capture) -> None:
    main(["help", name])
    assert "`` " not in capsys.readouterr().out


def test_help_of_a_command_is_its_options(capsys: Capture) -> None:
    assert main(["help", "build"]) == 0
    shown = capsys.readouterr().out
    assert main(["build", "--help"]) == 0
    assert capsys.readouterr().out == shown


def test_help_of_a_command_is_json_where_that_is_asked_for(capsys: Capture) -> None:
    assert main(["help", "build"]) == 0
    shown = capsys.readouterr().out
    assert main(["help", "build", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"topic": "build", "text": shown}


def test_an_unknown_topic_is_told(snapshot: Snapshot, capsys: Capture) -> None:
    assert main(["help", "exit-code"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    snapshot("help-unknown-topic", err)


def test_topics_are_completed() -> None:
    assert complete_topic("remote-r") == ["remote-roles"]
    assert complete_topic("") == list(TOPICS)


def test_every_page_is_a_topic() -> None:
    pages = {topic.page for topic in TOPICS.values() if topic.is_whole_page}
    assert {path.name for path in PAGES.glob("*.md")} - pages == {"index.md"}
    assert all(len(f"{topic.name} {topic.summary}") <= 74 for topic in TOPICS.values())


def test_declarations_all_count() -> None:
    declared = [
        name for path in PAGES.glob("*.md") for name in re.findall(r"<!-- help: ([a-z0-9-]+)", path.read_text())
    ]
    assert sorted(declared) == sorted(TOPICS), "two topics of one name, or one that stands before no heading"


def messages() -> Iterator[tuple[str, str]]:
    """The strings in the code that are no docstrings, with their places."""
    for room in ("mlcbuild", "rules", "cache"):
        for path in sorted((PROJECT / room).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if not re.search(r"mlcbuild help|\.md\b", text):
                continue
            tree = ast.parse(text)
            docstrings = {
                node.body[0].value
                for node in ast.walk(tree)
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
                and node.body
                and isinstance(node.body[0], ast.Expr)
            }
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
                    yield f"{path.relative_to(PROJECT)}:{node.lineno}", node.value


def test_messages_cite_topics_that_there_are() -> None:
    """Who installed a wheel has no docs/."""
    cited = [(place, name) for place, text in messages() for name in _CITED.findall(text)]
    assert len(cited) >= 5
    assert [(place, name) for place, name in cited if name not in TOPICS and name not in COMMANDS] == []
    assert [place for place, text in messages() if re.search(r"\b(docs/(?!gguf)[\w-]+|ARCHITECTURE)\.md", text)] == []


def test_pages_cite_topics_that_there_are() -> None:
    for path in (*PAGES.glob("*.md"), PROJECT / "README.md"):
        for name in _CITED.findall(path.read_text(encoding="utf-8")):
            assert name in TOPICS or name in COMMANDS, f"{path.name}: mlcbuild help {name}"
