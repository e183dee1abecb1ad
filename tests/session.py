"""What all tests of a session share, whichever process runs them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from mlcbuild.execution.server_pool import shut_down


def session_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder that is empty when the session begins; the processes of pytest-xdist have it in common."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def warm_workers_of_a_session() -> Iterator[Mapping[str, str]]:
    """Variables by which commands leave their workers to each other, so that TVM is loaded once. The workers end with
    the block. The folder of their sockets has a short path, which those of tests do not have.
    """
    with tempfile.TemporaryDirectory(prefix="mlcbuild-") as folder:
        try:
            yield {"MLCBUILD_WORKERS": "warm", "XDG_RUNTIME_DIR": folder}
        finally:
            shut_down(Path(folder, "mlcbuild"))
