"""A workspace of each test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.small_workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)
