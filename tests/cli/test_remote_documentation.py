"""The page on remote caches has all settings and all reasons of misses, and its examples are valid."""

from __future__ import annotations

import re
from pathlib import Path

from mlcbuild.cache.remote.counters import MissReason
from mlcbuild.workspace.error_collector import ErrorCollector
from mlcbuild.workspace.remote import PERSONAL, REMOTE_SETTINGS, read_remote
from mlcbuild.workspace.toml import parse

PAGE = (Path(__file__).parents[2] / "docs" / "remote.md").read_text()


def test_every_setting_has_its_row() -> None:
    shared, personal = (
        PAGE.split("\n## Settings and their sources\n")[1].split("\n## ")[0].split("These settings are personal")
    )
    for text, names in (
        (shared, {setting.name for setting in REMOTE_SETTINGS} - {setting.name for setting in PERSONAL}),
        (personal, {setting.name for setting in PERSONAL}),
    ):
        rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
        assert {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)} == names


def test_every_reason_of_a_miss_has_its_row() -> None:
    rows = PAGE.split("| a lookup missed because |")[1].split("\n\n")[0].splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == [reason.value for reason in MissReason]


def test_examples_say_what_their_files_may() -> None:
    examples = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        errors = ErrorCollector()
        read_remote(parse(example, "docs/remote.md"), errors, personal="settings.toml" in example)
        errors.raise_if_any()
