"""What tells one machine from another, for measurements."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from mlcbuild.toolchains.entries import machine, processor
from mlcbuild.toolchains.table import Toolchains


def test_another_name_or_processor_is_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    found = set()
    for name, model in (("one", "Some CPU"), ("other", "Some CPU"), ("one", "Another CPU"), ("one", "Some CPU")):
        monkeypatch.setattr(platform, "node", lambda name=name: name)
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nmodel name\t: {model}\n")
        assert machine.processor_name() == model
        found.add(Toolchains().fingerprint("machine:here"))
    assert len(found) == 3


def test_a_machine_that_does_not_name_its_processor_has_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "absent")
    assert machine.processor_name() == platform.machine()
