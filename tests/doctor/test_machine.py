"""Checks of a machine, with the limits of a container simulated by files."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest

from mlcbuild.doctor import machine
from mlcbuild.doctor.finding import Verdict


def group(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def meminfo(folder: Path, *, total: int, available: int) -> Path:
    path = folder / "meminfo"
    path.write_text(f"MemTotal:  {total // 1024} kB\nMemFree: 5 kB\nMemAvailable: {available // 1024} kB\n")
    return path


def test_this_machine_is_fit_for_the_tests_that_run_on_it() -> None:
    for check in machine.machine_checks():
        assert check.examine().verdict in (Verdict.OK, Verdict.WARNING), check.name


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu_dot_max": "max 100000\n"}, 0.0),
        ({"cpu_dot_max": "150000 100000\n"}, 1.5),
        ({"cpu__cpu_dot_cfs_quota_us": "50000\n", "cpu__cpu_dot_cfs_period_us": "100000\n"}, 0.5),
        ({"cpu__cpu_dot_cfs_quota_us": "-1\n", "cpu__cpu_dot_cfs_period_us": "100000\n"}, 0.0),
        ({"cpu_dot_max": "nonsense"}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_processors_that_a_control_group_grants(tmp_path: Path, files: dict[str, str], quota: float) -> None:
    assert machine.processor_quota(group(tmp_path, **files)) == quota


def test_less_than_a_processor_is_warned_of(tmp_path: Path) -> None:
    finding = machine.processors(groups=[group(tmp_path, cpu_dot_max="50000 100000")])
    assert finding.verdict is Verdict.WARNING
    assert finding.measured.startswith(f"0.5 of {os.cpu_count()}, ")


def test_the_tightest_of_the_groups_around_a_process_holds(tmp_path: Path) -> None:
    group(tmp_path / "a.slice", memory_dot_max="max", cpu_dot_max="max 100000")
    group(tmp_path / "a.slice/b.scope", memory_dot_max="4000000000", memory_dot_current="500000000")
    own = tmp_path / "own"
    own.write_text("0::/a.slice/b.scope\n")
    groups = machine.control_groups(mount=tmp_path, own=own)
    assert groups == [tmp_path / "a.slice/b.scope", tmp_path / "a.slice", tmp_path]
    finding = machine.memory(groups=groups, meminfo=meminfo(tmp_path, total=16 << 30, available=8 << 30))
    assert finding.verdict is Verdict.OK
    assert finding.measured == "3.5 GB free of 4 GB allowed by the control group"
    # Where the kernel has no version 2, or shows a container its own group as the root.
    own.write_text("3:cpu:/docker/1\n")
    assert machine.control_groups(mount=tmp_path, own=own) == [tmp_path]


def test_files_that_the_kernel_can_drop_do_not_count_as_used(tmp_path: Path) -> None:
    stat = "anon 100\ninactive_file 2500000000\n"
    folder = group(tmp_path / "v2", memory_dot_max="4000000000", memory_dot_current="3000000000", memory_dot_stat=stat)
    assert machine.memory_limit(folder) == (4_000_000_000, 500_000_000)
    old = group(
        tmp_path / "v1",
        memory__memory_dot_limit_in_bytes="4000000000",
        memory__memory_dot_usage_in_bytes="3000000000",
        memory__memory_dot_stat="total_inactive_file 1000000000\n",
    )
    assert machine.memory_limit(old) == (4_000_000_000, 2_000_000_000)
    none = group(tmp_path / "none", memory__memory_dot_limit_in_bytes=str((1 << 63) - 4096))
    assert machine.memory_limit(none) == (0, 0)


def test_little_memory_is_warned_of(tmp_path: Path) -> None:
    finding = machine.memory(groups=[tmp_path], meminfo=meminfo(tmp_path, total=8 << 30, available=1 << 30))
    assert finding.verdict is Verdict.WARNING
    assert finding.measured == "1.1 GB free of 8.6 GB"
    assert machine.memory(groups=[tmp_path], meminfo=tmp_path / "none").verdict is Verdict.WARNING


def test_a_clock_in_the_past_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 50 * 365 * 86_400)
    finding = machine.clock()
    assert finding.verdict is Verdict.ERROR
    assert "which is in the past" in finding.measured


def test_a_clock_that_jumps_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = time.time, []

    def jumping() -> float:
        calls.append(1)
        return real() + 3 * (len(calls) > 1)

    monkeypatch.setattr(time, "time", jumping)
    finding = machine.clock()
    assert finding.verdict is Verdict.WARNING
    assert "it jumped by +3.0" in finding.measured


def test_few_open_files_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    finding = machine.open_files()
    assert (finding.verdict, finding.advice) == (Verdict.WARNING, ("ulimit -n 4096",))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [(("glibc", "2.36"), Verdict.OK), (("glibc", "2.17"), Verdict.ERROR), (("", ""), Verdict.ERROR)],
)
def test_the_c_library_has_to_be_one_that_tvm_is_made_for(
    monkeypatch: pytest.MonkeyPatch, found: tuple[str, str], verdict: Verdict
) -> None:
    monkeypatch.setattr("platform.libc_ver", lambda: found)
    assert machine.c_library().verdict is verdict
