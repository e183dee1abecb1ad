"""The start of a command against the start of Python, measured in turn, so that load affects both."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

RUNS = 7


def seconds(*arguments: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


@pytest.mark.slow
def test_help_costs_at_most_ten_starts_of_python() -> None:
    bare, shown = [], []
    for _ in range(RUNS):
        bare.append(seconds("-c", "pass"))
        shown.append(seconds("-m", "mlcbuild.cli.main", "--help"))
    ratio = min(shown) / min(bare)
    print(f"--help: {min(shown) * 1000:.0f} ms, Python: {min(bare) * 1000:.0f} ms, ratio {ratio:.1f}")
    assert ratio <= 10
