"""What is installed is tried, and what is installed wrongly is told with what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlcbuild.doctor import distributions, programs
from mlcbuild.doctor.finding import Verdict


def installed(folder: Path, name: str, version: str) -> None:
    """A distribution by its metadata alone."""
    information = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.mark.slow
def test_tvm_compiles_here() -> None:
    finding = distributions.tvm_compiles()
    assert finding.verdict is Verdict.OK, finding
    assert "compiled, linked and ran a function" in finding.measured
    assert finding.figures["import_seconds"]


def test_a_tvm_ffi_that_tvm_cannot_work_with_is_told_by_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "apache-tvm-ffi", "0.1.15.post2")
    monkeypatch.syspath_prepend(str(tmp_path))
    from mlcbuild.doctor.check import Check, Part
    from mlcbuild.doctor.examination import examine

    found = examine(Part(name="x", checks=lambda: ()), Check(name="tvm", examine=distributions.tvm_versions)).finding
    assert found.verdict is Verdict.PROBLEM
    assert "apache-tvm-ffi 0.1.15.post2 is installed" in found.measured
    assert found.advice == ('run: python -m pip install "apache-tvm-ffi==0.1.14.post1"',)
    # And so is that it is not the version that mlcbuild asks for.
    needed = distributions.dependencies()
    assert needed.verdict is Verdict.PROBLEM
    assert "apache-tvm-ffi 0.1.15.post2 (needed: 0.1.14.post1)" in needed.measured


def test_a_tvm_that_crashes_is_a_finding_and_no_crash_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = distributions.tvm_compiles(program="import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert finding.verdict is Verdict.PROBLEM
    assert finding.measured == "compiling a function of one line is ended by SIGSEGV"
    installed(tmp_path, "apache-tvm-ffi", "0.1.15.post2")
    monkeypatch.syspath_prepend(str(tmp_path))
    finding = distributions.tvm_compiles(program="raise SystemExit(1)")
    assert 'run: python -m pip install "apache-tvm-ffi==0.1.14.post1"' in finding.advice


def test_cudas_compiler_compiles_or_is_not_installed() -> None:
    finding = distributions.cuda_compiles()
    if finding.verdict is not Verdict.SKIPPED:
        assert finding.verdict is Verdict.OK, finding


def test_without_the_wheels_of_cuda_it_is_said_how_to_have_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    finding = distributions.cuda_compiles()
    assert finding.verdict is Verdict.SKIPPED
    assert finding.advice == ('run: python -m pip install "mlcbuild[cuda]"',)


def test_an_extra_that_is_not_installed_is_said_with_what_it_is_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    finding = distributions.extra("boto3")
    assert finding.verdict is Verdict.SKIPPED
    assert finding.advice == ('for remote caches in buckets, and s3_file: python -m pip install "mlcbuild[s3]"',)


def test_an_extra_whose_import_fails_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(distributions.EXTRAS, "boto3", ("nobody_has_this_module", "s3", "buckets"))
    finding = distributions.extra("boto3")
    assert finding.verdict is Verdict.PROBLEM
    assert "its import fails: ModuleNotFoundError: No module named" in finding.measured
    assert finding.advice == ("run: python -m pip install --force-reinstall boto3",)


def test_a_linker_that_links_nothing_is_a_problem(tmp_path: Path) -> None:
    assert programs.linker().verdict is Verdict.OK
    broken = tmp_path / "ld"
    broken.write_text('#!/bin/sh\ntest "$1" = --version && echo "GNU ld 2.1" && exit\necho "ld: no disk" >&2; exit 1\n')
    broken.chmod(0o755)
    finding = programs.linker([str(tmp_path)])
    assert finding.verdict is Verdict.PROBLEM
    assert finding.measured == f"GNU ld 2.1, {broken}: linking a library fails: ld: no disk"


def test_no_gcc_is_no_problem(tmp_path: Path) -> None:
    assert programs.gcc([str(tmp_path)]).verdict is Verdict.SKIPPED
