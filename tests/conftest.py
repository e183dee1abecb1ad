"""What all tests share. pytest-xdist deals them out by files, so that what those of a file share is made once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.session import session_folder

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

# Files whose tests share what takes much longer to make than to use are dealt out as one.
_TOGETHER = {
    "tests/remote/test_lazy_downloads.py": "tests/remote/test_relocation.py",
    "tests/execution/ray/test_doctor.py": "tests/execution/ray/test_builds.py",
    "tests/execution/ray/test_node_failures.py": "tests/execution/ray/test_builds.py",
    "tests/execution/ray/test_s3_on_a_cluster.py": "tests/execution/ray/test_builds.py",
    "tests/execution/ray/test_whole_clusters.py": "tests/execution/ray/test_builds.py",
}


@pytest.fixture(scope="session")
def kernel_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled kernels by name, target and optimization, which `tests.compiler.pipeline` shares among libraries."""
    return session_folder(tmp_path_factory, "kernels")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Whatever `--dist` says; in the order of collection, whose last files are quick ones."""
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return _TOGETHER.get(file, file)

    config.option.loadscopereorder = False
    return Files(config, log)
