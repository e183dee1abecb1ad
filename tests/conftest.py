"""What all tests share. pytest-xdist deals them out by files, so that what those of a file share is made once."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.end_to_end.kernel_cache import KernelCache
from tests.session import session_folder, warm_workers_of_a_session

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

# Files whose tests share what takes much longer to make than to use are dealt out as one.
_TOGETHER = {
    "tests/cli/test_batch.py": "tests/runtime/test_generation.py",
    "tests/cli/test_chat.py": "tests/runtime/test_generation.py",
    "tests/runtime/embedding/test_packages.py": "tests/runtime/test_generation.py",
    "tests/runtime/batch/test_run.py": "tests/runtime/test_generation.py",
    "tests/runtime/test_chat.py": "tests/runtime/test_generation.py",
    "tests/remote/test_lazy_downloads.py": "tests/remote/test_relocation.py",
    "tests/execution/ray/test_calibration_on_a_cluster.py": "tests/execution/ray/test_builds.py",
    "tests/execution/ray/test_doctor.py": "tests/execution/ray/test_builds.py",
    "tests/execution/ray/test_node_failures.py": "tests/execution/ray/test_builds.py",
    "tests/execution/ray/test_s3_on_a_cluster.py": "tests/execution/ray/test_builds.py",
    "tests/execution/ray/test_whole_clusters.py": "tests/execution/ray/test_builds.py",
}


def pytest_configure() -> None:
    """What is printed has lines of any length, where a test does not say otherwise: a process of pytest-xdist is told
    the width of the terminal.

    Libraries compute by one thread, as in actions (`mlcbuild.execution.environment`): models of tests are small, and
    threads that wait for each other on a busy machine take three times the processor's time of one.

    Ctrl-C ends commands even where the tests were started in the background by a shell, which has them ignore it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("COLUMNS", None)
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Exhaustive tests may take hours. Of all others one that hangs fails after a while, and the others run."""
    for item in items:
        if item.get_closest_marker("exhaustive"):
            item.add_marker(pytest.mark.timeout(0))


@pytest.fixture(autouse=True)
def _commands_end_with_their_test() -> Iterator[None]:
    """Commands leave what they made to the end of their process (`mlcbuild.workspace.collector`), which many share."""
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def kernel_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled kernels by name, target and optimization, which `tests.compiler.pipeline` shares among libraries."""
    return session_folder(tmp_path_factory, "kernels")


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> KernelCache:
    """Results of kernels' actions, for builds by the command line that are not about kernels."""
    return KernelCache(session_folder(tmp_path_factory, "kernel-cache"))


@pytest.fixture(scope="session")
def warm_workers() -> Iterator[Mapping[str, str]]:
    """Variables for commands that may take workers which others have started."""
    with warm_workers_of_a_session() as variables:
        yield variables


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


@pytest.fixture(scope="session")
def tiny_package(tmp_path_factory: pytest.TempPathFactory, kernel_store: Path) -> Path:
    """A llama of two layers, with a context of 64 tokens, fed in chunks of at most 16.

    Its tokens are bytes, but for a few words; its chat template puts <|end|> (0) before each message.
    """
    from tests.compiler.tiny_models import checkpoint, write_gguf
    from tests.runtime.tiny_package import build_package

    directory = tmp_path_factory.mktemp("tiny")
    source = write_gguf(directory / "tiny.gguf", checkpoint())
    overrides = {"context_window_size": 64, "prefill_chunk_size": 16}
    return build_package(source, directory, overrides=overrides, kernel_store=kernel_store)
