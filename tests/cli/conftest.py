"""Whole-text comparison of what is printed.

`MLCBUILD_UPDATE_SNAPSHOTS=1 pytest tests/cli` writes the files anew; the difference is then for the reviewer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mlcbuild.cli.output.text import COLUMNS, wrapped
from tests.cli.kernel_workspace import ask, built, workspace
from tests.cli.remote_places import place, server

_DIRECTORY = Path(__file__).parent / "snapshots"
UPDATE_VARIABLE = "MLCBUILD_UPDATE_SNAPSHOTS"

Snapshot = Callable[[str, str], None]

__all__ = ["ask", "built", "place", "server", "workspace"]


@pytest.fixture
def snapshot() -> Snapshot:
    """Compare a text with `snapshots/NAME.txt`. Trailing spaces count; escape codes are shown as `␛`."""

    def check(name: str, text: str) -> None:
        shown = text.replace("\x1b", "␛").replace("\r", "␍")
        path = _DIRECTORY / f"{name}.txt"
        if os.environ.get(UPDATE_VARIABLE):
            path.parent.mkdir(exist_ok=True)
            path.write_text(shown, encoding="utf-8")
        if not path.exists():
            pytest.fail(f"no snapshot {path.name}; {UPDATE_VARIABLE}=1 writes it")
        assert shown == path.read_text(encoding="utf-8")

    return check


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, warm_workers: Mapping[str, str]) -> None:
    """Nothing of the user's own. Commands leave their workers to the next one, since starting them is most of what a
    small build costs.
    """
    remote = [name for name in os.environ if name.startswith("MLCBUILD_REMOTE")]
    for name in ("NO_COLOR", "MLCBUILD_DEBUG", "FORCE_COLOR", *remote):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no settings"))
    monkeypatch.setenv("COLUMNS", "0")  # Lines of any length, so that searches for a message find it.
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in warm_workers.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def eighty_columns(monkeypatch: pytest.MonkeyPatch, _plain_environment: None) -> None:
    """What is printed is wrapped at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")


def at_eighty_columns(text: str) -> str:
    """A message as it is printed at 80 columns. For a text whose paths or figures have been replaced."""
    return "".join(f"{line}\n" for line in wrapped(text.splitlines(), COLUMNS))


def long_folder(folder: Path) -> Path:
    """A folder below `folder` whose path is at least 80 columns long: it is broken in the same way on each machine."""
    made = folder / "x".ljust(80 - len(f"{folder}/"), "x")
    made.mkdir()
    return made


@pytest.fixture
def cold_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is told of workers, and what ends them: those of other tests are out of sight."""
    for name in ("MLCBUILD_WORKERS", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name)
