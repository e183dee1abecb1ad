"""What tests of kernels for GPUs share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the texts of kernels are compiled for the CPU, each once."""
    return tmp_path_factory.mktemp("programs")
