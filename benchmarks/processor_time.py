"""Processor seconds of tests: of each file, and of the tests that took most.

    python -m benchmarks.processor_time [--slowest=N] PYTEST_ARGUMENT…

A busy machine changes them little, unlike seconds of the clock. They are those of the process of the tests, of the
processes that it started and waited for, and of those that outlive their parents, such as servers of workers: these
are counted where they end, or after the last test.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

_LOG = "MLCBUILD_PROCESSOR_TIME_LOG"
_SUBREAPER = 36  # prctl(2), PR_SET_CHILD_SUBREAPER
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Spent:
    """`test` ended at `time` (seconds of the monotonic clock); it used `seconds` of a processor."""

    test: str
    time: float
    seconds: float


def used(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


class Recorder:
    """The plugin that writes a line for each test."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._before = 0.0  # The first test is counted with the imports and the collection.

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        now = used(resource.getrusage(resource.RUSAGE_SELF)) + used(resource.getrusage(resource.RUSAGE_CHILDREN))
        with self._path.open("a", encoding="utf-8") as log:
            log.write(f"{time.monotonic()}\t{now - self._before}\t{nodeid}\n")
        self._before = now


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(os.environ[_LOG]))


def measure(arguments: list[str]) -> tuple[int, list[Spent]]:
    """pytest's exit code, and what each test used."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        log.touch()
        command = [sys.executable, "-m", "pytest", "-p", "benchmarks.processor_time", *arguments]
        tests = subprocess.Popen(command, env={**os.environ, _LOG: str(log)})
        code: int | None = None
        orphans: list[tuple[float, float]] = []
        until = float("inf")
        while time.monotonic() < until:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == tests.pid:
                code = os.waitstatus_to_exitcode(status)
                until = time.monotonic() + _PATIENCE_SECONDS
            elif pid:
                orphans.append((time.monotonic(), used(usage)))
            else:
                time.sleep(0.05)
        lines = [line.split("\t", 2) for line in log.read_text(encoding="utf-8").splitlines()]
    spent = [Spent(time=float(ended), seconds=float(seconds), test=test) for ended, seconds, test in lines]
    return code or 0, [*spent, *(_of_orphan(spent, ended, seconds) for ended, seconds in orphans)]


def _of_orphan(spent: list[Spent], ended: float, seconds: float) -> Spent:
    """It is counted with the test that was running, or with the last one."""
    test = next((each.test for each in spent if each.time >= ended), spent[-1].test if spent else "(no test)")
    return Spent(test=test, time=ended, seconds=seconds)


def main() -> int:
    arguments = sys.argv[1:]
    slowest = 25
    if arguments and arguments[0].startswith("--slowest="):
        slowest = int(arguments.pop(0).partition("=")[2])
    code, spent = measure(arguments)
    files: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for each in spent:
        files[each.test.partition("::")[0]] += each.seconds  # type: ignore[assignment]
        tests[each.test] += each.seconds  # type: ignore[assignment]
    for title, counted in (("file", files), ("test", tests)):
        print(f"\nprocessor seconds of each {title}, of {sum(counted.values()):.1f} s")
        for name, seconds in counted.most_common(slowest if title == "test" else None):
            print(f"{seconds:8.1f}  {name}")
    return code


if __name__ == "__main__":
    sys.exit(main())
