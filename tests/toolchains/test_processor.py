"""The level of a processor, by what Linux says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.toolchains.entries import processor
from mlcbuild.toolchains.table import Toolchains

V2 = "fpu sse sse2 cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"
V3 = f"{V2} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"


def cpuinfo(flags: str) -> str:
    return f"processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: {flags}\n\nprocessor\t: 1\nflags\t\t: {flags}\n"


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("fpu sse sse2", "x86-64"),
        (V2, "x86-64-v2"),
        (V3, "x86-64-v3"),
        (V4, "x86-64-v4"),
        (V4.replace(" fma ", " "), "x86-64-v2"),
        (f"{V3} avx512f", "x86-64-v3"),
        ("", "x86-64"),
    ],
)
def test_a_level_has_all_its_features_and_those_of_the_levels_below(flags: str, level: str) -> None:
    assert processor.processor_level(cpuinfo(flags), "x86_64") == level


def test_other_machines_have_one_level() -> None:
    assert processor.processor_level("Features\t: fp asimd\n", "aarch64") == "aarch64"


def test_the_fingerprint_is_that_of_the_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    found = {}
    for name, flags in {"v3": V3, "more": f"{V3} amx_tile", "v4": V4}.items():
        (tmp_path / "cpuinfo").write_text(cpuinfo(flags))
        found[name] = Toolchains().fingerprint("processor:here")
    assert found["v3"] == found["more"] != found["v4"]


def test_a_level_by_name_is_only_for_machines_of_that_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(cpuinfo(V3))
    Toolchains().check(["processor:x86-64-v3", "processor:here"])
    with pytest.raises(
        LocalEnvironmentError, match="processors of the level x86-64-v4, and this machine has x86-64-v3"
    ):
        Toolchains().check(["processor:x86-64-v4"])
