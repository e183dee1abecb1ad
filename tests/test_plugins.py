"""Plug-ins are found by listing a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild import plugins


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(plugins, "_ROOT", str(tmp_path))
    monkeypatch.setattr(plugins, "_observed", set())
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
    assert plugins.observed_paths() == {str(root / "kinds")}


def test_what_was_looked_for_is_known(root: Path) -> None:
    """The folder of a family may exist before its family.py does, and then its parent does not change any more."""
    for path in ("families/a/family.py", "families/half/model.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    plugins.plugins_in("families", module="family")
    plugins.missing_modules("families/a", ["family", "model"])
    looked_for = {"families/a/family.py", "families/half/family.py", "families/a/model.py"}
    assert plugins.observed_paths() == {str(root / path) for path in ("families", *looked_for)}
