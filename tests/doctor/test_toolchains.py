"""Every toolchain is tested; a missing or broken one is a finding with advice."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from pathlib import Path

import pytest

from mlcbuild.doctor.check import Check, Part
from mlcbuild.doctor.examination import examine
from mlcbuild.doctor.finding import Finding, Verdict
from mlcbuild.doctor.toolchains import examine_toolchain, toolchain_checks
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.table import every, find
from mlcbuild.toolchains.toolchain import Toolchain
from tests.engine.installed_wheels import install

TVM, NVRTC, LINKER, TOOLKIT = (find(name)[0] for name in ("tvm", "nvrtc", "ld", "cuda_toolkit:/opt/cuda"))


def examined(toolchain: Toolchain, site: Path) -> Finding:
    """What a check finds if only `site` is installed."""
    files = InstalledFiles(JsonCache(None, kind="test"), search_path=[str(site)], program_folders=[str(site)])
    check = Check(name=toolchain.name, examine=lambda: examine_toolchain(toolchain, files))
    return examine(Part(name="x", checks=lambda: ()), check).finding


def test_every_toolchain_but_those_that_are_nothing_without_a_path_has_a_check() -> None:
    assert [check.name for check in toolchain_checks()] == [
        each.name for each in every() if each.trial or not each.takes_path
    ]


@pytest.mark.slow
def test_tvm_compiles_here() -> None:
    finding = examine_toolchain(TVM)
    assert finding.verdict is Verdict.OK, finding
    assert "; compiled, linked and ran a function in " in finding.measured
    assert finding.figures["import_seconds"]


def test_the_linker_links_here() -> None:
    finding = examine_toolchain(LINKER)
    assert finding.verdict is Verdict.OK, finding
    assert "; linked a library with " in finding.measured


def test_cudas_compiler_compiles_or_is_not_installed() -> None:
    finding = examine_toolchain(NVRTC)
    if finding.verdict is not Verdict.SKIPPED:
        assert finding.verdict is Verdict.OK, finding


def test_the_host_compiler_of_toolkits_is_tried_or_not_needed() -> None:
    finding = examine_toolchain(TOOLKIT)
    if finding.verdict is not Verdict.SKIPPED:
        assert finding.measured.startswith("its host compiler is "), finding


def test_an_incompatible_tvm_ffi_is_found_by_metadata(tmp_path: Path) -> None:
    install(tmp_path, "apache_tvm", "0.27.0.post1", {})
    install(tmp_path, "apache_tvm_ffi", "0.1.15.post2", {})
    finding = examined(TVM, tmp_path)
    assert finding.verdict is Verdict.ERROR
    assert "apache-tvm-ffi 0.1.15.post2 is installed" in finding.measured
    assert finding.advice == ('run: python -m pip install "apache-tvm-ffi==0.1.14.post1"',)


def test_a_missing_linker_is_an_error(tmp_path: Path) -> None:
    finding = examined(LINKER, tmp_path)
    assert (finding.verdict, finding.advice) == (Verdict.ERROR, ("install binutils",))


def test_an_optional_toolchain_that_a_target_needs_is_an_error(tmp_path: Path) -> None:
    files = InstalledFiles(JsonCache(None, kind="test"), search_path=[str(tmp_path)], program_folders=[str(tmp_path)])
    finding = examine_toolchain(NVRTC, files, needed=lambda: {"nvrtc": "//models:x-cuda"})
    assert finding.verdict is Verdict.ERROR
    assert finding.measured.endswith(", and //models:x-cuda needs it")
    assert finding.advice == ('run: python -m pip install "mlcbuild[cuda]"',)
    assert examine_toolchain(NVRTC, files, needed=lambda: {"ld": "//:x"}).verdict is Verdict.SKIPPED


def test_paths_that_targets_name_are_checked(tmp_path: Path) -> None:
    needed = {"tvm": "//:x", f"cuda_toolkit:{tmp_path}": "//:x", "cross_ld:vax": "//:y"}
    checks = {check.name: check for check in toolchain_checks(lambda: needed)}
    finding = checks["cross_ld:vax"].examine()
    assert (finding.verdict, finding.measured.endswith(", and //:y needs it")) == (Verdict.ERROR, True)
    assert checks[f"cuda_toolkit:{tmp_path}"].examine().verdict is Verdict.ERROR


def test_without_the_wheels_of_cuda_the_finding_names_the_extra(tmp_path: Path) -> None:
    finding = examined(NVRTC, tmp_path)
    assert (finding.verdict, finding.advice) == (Verdict.SKIPPED, ('run: python -m pip install "mlcbuild[cuda]"',))


def test_a_toolchain_that_crashes_is_a_finding_and_no_crash_of_ours() -> None:
    finding = examine_toolchain(replace(TVM, trial="import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))
    assert finding.verdict is Verdict.ERROR
    assert finding.measured.endswith(": its trial is ended by SIGSEGV")
    again = " ".join(f"{name}=={importlib.metadata.version(name)}" for name in ("apache-tvm", "apache-tvm-ffi"))
    assert finding.advice == (f"install it again: python -m pip install --force-reinstall --no-deps {again}",)
