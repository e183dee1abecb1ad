"""Tables that people wrote have every exit code and variable of the code; pages that are made have everything."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from mlcbuild.cache.digest import Digest
from mlcbuild.cli.exit_codes import ExitCode, retry_line
from mlcbuild.cli.reports.event_log import event_record, file_document
from mlcbuild.cli.settings.execution import VARIABLES
from mlcbuild.cli.settings.remote import variable_of
from mlcbuild.engine.build_events import ActionFinished, BuildEvent, BuildFinished
from mlcbuild.engine.executor import FileEntry
from mlcbuild.workspace.remote import REMOTE_SETTINGS
from tests.documentation.pages import PROJECT, paths
from website.reference import PAGES
from website.reference.outcomes import outcomes_page
from website.reference.reports import reports_page
from website.reference.settings import settings_page

COMMAND_LINE = (PROJECT / "docs/command-line.md").read_text(encoding="utf-8")
# They are for mlcbuild itself: between the build and its nodes, and between a shell and completion.
OF_ITS_OWN = {"MLCBUILD_NODE_STORE", "MLCBUILD_COMPLETE"}


def section(title: str) -> str:
    return COMMAND_LINE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def strings() -> Iterator[str]:
    """The strings in the code."""
    for room in ("mlcbuild", "rules", "cache"):
        for path in (PROJECT / room).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "MLCBUILD_" in text:
                nodes = ast.walk(ast.parse(text))
                yield from (node.value for node in nodes if isinstance(node, ast.Constant) and type(node.value) is str)


def test_every_exit_code_has_its_row() -> None:
    rows = re.findall(r"^\| (\d+) \| .* \| (yes)? ?\|$", section("Exit codes"), re.MULTILINE)
    assert {int(code): bool(retry) for code, retry in rows} == {int(code): bool(retry_line(code)) for code in ExitCode}
    assert all(f"| `{code.name}` |" in outcomes_page() for code in ExitCode)


def test_every_variable_is_documented() -> None:
    named = {name for text in strings() for name in re.findall(r"\bMLCBUILD_[A-Z_]*[A-Z]\b", text)} - OF_ITS_OWN
    named |= {variable_of(setting.name) for setting in REMOTE_SETTINGS} | VARIABLES.keys()
    assert {"MLCBUILD_DEBUG", "MLCBUILD_REMOTE_HEADERS", "MLCBUILD_CACHE_MAX_AGE"} <= named
    text = "\n".join([settings_page(), *(path.read_text(encoding="utf-8") for path in paths())])
    assert sorted(name for name in named if not re.search(rf"\b{name}\b", text)) == []


def test_every_event_and_field_is_on_the_page() -> None:
    page = reports_page()
    for event in get_args(BuildEvent):
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", event.__name__).lower()
        part = page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (.*) \|$", part, re.MULTILINE)
        required = dict.fromkeys(event.__dataclass_fields__) | {"start": 1.0, "time": 2.0, "log": b""}
        made = event(**{field: value for field, value in required.items() if field in event.__dataclass_fields__})
        written = event_record(made) if event is not BuildFinished else event_record(replace(made, counts=()))
        assert [field for field, _ in rows] == [field for field in written if field != "event"]
        assert [field for field, meaning in rows if not meaning] == []
    assert set(file_document(FileEntry(path="", digest=Digest("0" * 64, 0)))) == set(
        re.findall(r"^\| `(\w+)` \|", page.partition("\n### FileEntry\n")[2], re.MULTILINE)
    )
    assert "| `output_files` | list of FileEntry |" in page
    assert "| `cause` | Cause or null |" in page
    assert ActionFinished.__doc__
    assert ActionFinished.__doc__.splitlines()[0] in page


def test_pages_are_made() -> None:
    assert all(make().startswith("# ") for make in PAGES.values())
