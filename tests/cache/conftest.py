"""A store of each test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    return DiskStore(tmp_path / "store", DigestFunction.BLAKE3)
