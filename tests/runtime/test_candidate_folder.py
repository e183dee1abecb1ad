"""A folder of candidates: its lines of measurements."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mlcbuild.runtime.measuring.candidate_folder import add_measured, measured_candidates
from mlcbuild.runtime.measuring.measurement import MEASURED, Measurement, MeasuringDevice

FOUND = Measurement(outcome=MEASURED, device=MeasuringDevice(name="a processor"), seconds=1.0, untuned_seconds=1.0)


def _read_bytes() -> int:
    """What this process has read so far."""
    found = re.search(r"^rchar: (\d+)$", Path("/proc/self/io").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def test_a_line_is_appended_without_reading_those_before_it(tmp_path: Path) -> None:
    add_measured(tmp_path, "kernel", 1, [FOUND])
    path = tmp_path / "measurements.jsonl"
    os.truncate(path, 32 << 20)  # torn, as far as its last byte tells
    before = _read_bytes()
    add_measured(tmp_path, "kernel", 2, [FOUND])
    add_measured(tmp_path, "kernel", 3, [FOUND])
    assert _read_bytes() - before < 1 << 20
    assert [each.number for each in measured_candidates(tmp_path)][-2:] == [2, 3]
