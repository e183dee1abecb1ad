"""What users read about the language names all that the code knows, and its examples are right."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from mlcbuild.query.expression import FUNCTIONS, parse_query
from mlcbuild.workspace.schema import COMMON_ATTRIBUTES
from mlcbuild.workspace.settings import CONFIGURATION_SETTINGS, WORKSPACE_SETTINGS
from mlcbuild.workspace.toml import parse

PAGE = (Path(__file__).parents[2] / "docs" / "workspace.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("Attributes that every target has", [attribute.name for attribute in COMMON_ATTRIBUTES]),
        ("The root", [setting.name for setting in WORKSPACE_SETTINGS]),
        ("Configurations", [setting.name for setting in CONFIGURATION_SETTINGS]),
    ],
)
def test_every_setting_has_its_row(title: str, names: Iterable[str]) -> None:
    rows = [line.split("|")[1] for line in section(title).splitlines() if line.startswith("| `")]
    assert sorted(name for row in rows for name in re.findall(r"`([a-z_]+)`", row)) == sorted(names)


def test_every_function_is_shown_by_an_example_that_parses() -> None:
    text = section("Queries").partition("| `--output` |")[0]  # The forms of output follow in a table of their own.
    assert {function.name for function in FUNCTIONS}.issubset(re.findall(r"`([a-z]+)\(", text))
    examples = [code for row in re.findall(r"^\|(.*?)\|", text, re.MULTILINE) for code in re.findall(r"`(.+?)`", row)]
    assert len(examples) > 12
    for example in examples:
        parse_query(example)


def test_examples_are_toml() -> None:
    examples = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) >= 6
    for example in examples:
        parse(example, "docs/workspace.md")
