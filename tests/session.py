"""What all tests of a session share, whichever process runs them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def session_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder that is empty when the session begins; the processes of pytest-xdist have it in common."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    return folder
