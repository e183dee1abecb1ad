"""Plug-ins are found by listing a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild import plugins


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(plugins, "_ROOT", str(tmp_path))
    monkeypatch.setattr(plugins, "_listed", set())
    return tmp_path


def test_every_module_of_a_folder_is_a_plug_in(root: Path) -> None:
    for path in ("kinds/b.py", "kinds/a.py", "kinds/__init__.py", "kinds/notes.md", "kinds/__pycache__/a.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    assert plugins.plugins_in("kinds") == ("a", "b")


def test_a_folder_is_a_plug_in_where_it_has_the_module(root: Path) -> None:
    for path in ("families/b/family.py", "families/a/family.py", "families/half/model.py", "families/family.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    assert plugins.plugins_in("families", module="family") == ("a", "b")


def test_what_was_listed_is_known(root: Path) -> None:
    (root / "kinds").mkdir()
    plugins.plugins_in("kinds")
    assert plugins.listed_folders() == {str(root / "kinds")}
