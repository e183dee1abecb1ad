"""The level of a processor, by what Linux says of it."""

from __future__ import annotations

from collections.abc import Mapping
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


def _fingerprints(
    toolchain: str, machine: str, texts: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    found = {}
    for name, text in texts.items():
        (tmp_path / "cpuinfo").write_text(text)
        found[name] = str(Toolchains().fingerprint(toolchain))
    return found


def test_here_counts_instructions_beyond_the_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {"v3": V3, "amx": f"{V3} amx_tile", "v4": V4, "other kernel": f"{V3} pti ibrs hypervisor"}
    texts = {name: cpuinfo(each) for name, each in flags.items()}
    found = _fingerprints("processor:here", "x86_64", texts, tmp_path, monkeypatch)
    assert found["v3"] == found["other kernel"]
    assert len({found["v3"], found["amx"], found["v4"]}) == 3


# Each of which GCC's -march=native writes, or code of libraries that ask the processor.
@pytest.mark.parametrize("beyond", ["adx", "aes", "bmi2", "sse4a", "xop", "movdiri", "rdseed", "clwb", "made_tomorrow"])
def test_here_counts_any_instruction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beyond: str) -> None:
    texts = {"plain": cpuinfo(V2), "beyond": cpuinfo(f"{V2} {beyond}")}
    found = _fingerprints("processor:here", "x86_64", texts, tmp_path, monkeypatch)
    assert found["plain"] != found["beyond"]


def test_here_is_the_same_where_only_the_kernel_or_the_virtual_machine_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = "apic nopl hypervisor tsc_known_freq vmmcall cpuid constant_tsc ibrs ibpb stibp md_clear topoext x2apic"
    texts = {"plain": cpuinfo(V4), "guest": cpuinfo(f"{V4} {others}")}
    found = _fingerprints("processor:here", "x86_64", texts, tmp_path, monkeypatch)
    assert found["plain"] == found["guest"]


def test_a_level_by_name_is_one_for_all_machines_that_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"v3": cpuinfo(V3), "amx": cpuinfo(f"{V3} amx_tile")}
    found = _fingerprints("processor:x86-64-v3", "x86_64", texts, tmp_path, monkeypatch)
    assert found["v3"] == found["amx"]


@pytest.mark.parametrize("path", ["here", "aarch64"])
def test_other_machines_are_told_apart_by_instructions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    texts = {"neon": "Features\t: fp asimd\n", "sve": "Features\t: fp asimd sve\n"}
    found = _fingerprints(f"processor:{path}", "aarch64", texts, tmp_path, monkeypatch)
    assert found["neon"] != found["sve"]


def test_a_level_by_name_is_only_for_machines_of_that_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(cpuinfo(V3))
    Toolchains().check(["processor:x86-64-v3", "processor:here"])
    with pytest.raises(
        LocalEnvironmentError, match="processors of the level x86-64-v4, and this machine has x86-64-v3"
    ):
        Toolchains().check(["processor:x86-64-v4"])
