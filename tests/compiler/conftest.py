"""What tests of the compiler share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def kernel_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled kernels by name, shared by the libraries of a module."""
    return tmp_path_factory.mktemp("kernels")
