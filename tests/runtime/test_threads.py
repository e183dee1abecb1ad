"""The number of threads that a library computes with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlcbuild.runtime import threads


def _processors(path: Path, siblings: dict[int, str]) -> Path:
    for number, shared in siblings.items():
        directory = path / f"cpu{number}" / "topology"
        directory.mkdir(parents=True)
        (directory / "thread_siblings_list").write_text(shared + "\n")
    return path


def _quota(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def four_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})


@pytest.mark.usefixtures("four_allowed")
def test_hardware_threads_of_one_core_count_once(tmp_path: Path) -> None:
    processors = _processors(tmp_path / "cpu", {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"})
    assert threads.available_cores(processors=processors, quota=tmp_path / "none") == 2


@pytest.mark.usefixtures("four_allowed")
def test_processors_without_a_known_topology_are_cores(tmp_path: Path) -> None:
    assert threads.available_cores(processors=tmp_path, quota=tmp_path / "none") == 4


@pytest.mark.usefixtures("four_allowed")
@pytest.mark.parametrize(("text", "cores"), [("max 100000", 4), ("150000 100000", 2), ("50000 100000", 1), ("?", 4)])
def test_the_quota_of_a_container_limits_threads(tmp_path: Path, text: str, cores: int) -> None:
    assert threads.available_cores(processors=tmp_path, quota=_quota(tmp_path / "cpu.max", text)) == cores


@pytest.mark.parametrize(
    ("running", "allowed", "quota", "free"),
    [
        (1, 4, "max 100000", 4),
        (3, 4, "max 100000", 2),  # two others
        (13, 4, "max 100000", 1),  # one thread at least
        (9, 2, "max 100000", 1),  # of eight others on eight processors two are here
        (3, 8, "200000 100000", 2),  # six processors are free, of which two may be used
    ],
)
def test_there_are_no_more_threads_than_processors_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: int, allowed: int, quota: str, free: int
) -> None:
    load = tmp_path / "loadavg"
    load.write_text(f"0.10 0.20 0.30 {running}/700 4711\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(allowed)))
    monkeypatch.setattr(os, "cpu_count", lambda: 8 if allowed == 2 else allowed)
    monkeypatch.setattr(threads, "_PROCESSORS", tmp_path)
    monkeypatch.setattr(threads, "_QUOTA", _quota(tmp_path / "cpu.max", quota))
    assert threads.free_cores(load=load) == free
    for name in ("TVM_NUM_THREADS", "TVM_THREAD_POOL_SPIN_COUNT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    assert threads.set_threads(load=load) == free
    assert "TVM_THREAD_POOL_SPIN_COUNT" not in os.environ
    assert threads.set_threads(free + 1, load=load) == free + 1
    assert os.environ["TVM_THREAD_POOL_SPIN_COUNT"] == "0", "more threads than fit wait asleep"


def test_where_the_load_is_not_known_every_core_counts(tmp_path: Path) -> None:
    assert threads.free_cores(load=tmp_path / "none") == threads.available_cores()


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        threads.set_threads(-1)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="TVM makes no more threads than there are processors")
def test_the_pool_has_the_number_that_was_asked_for(count: int) -> None:
    program = (
        "from mlcbuild.runtime.threads import set_threads\n"
        "from mlcbuild.runtime.machine import import_tvm\n"
        f"set_threads({count})\n"
        "import_tvm()\n"
        "import tvm_ffi\n"
        "print(tvm_ffi.get_global_func('runtime.NumThreads')())\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(found.stdout) == count
