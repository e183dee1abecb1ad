"""Checks of installed distributions, and their advice."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from mlcbuild.doctor import distributions
from mlcbuild.doctor.finding import Verdict


def installed(folder: Path, name: str, version: str) -> None:
    """A distribution by its metadata alone."""
    information = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_a_version_other_than_the_pinned_one_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "apache-tvm-ffi", "0.1.15.post2")
    monkeypatch.syspath_prepend(str(tmp_path))
    finding = distributions.dependencies()
    assert finding.verdict is Verdict.ERROR
    assert "apache-tvm-ffi 0.1.15.post2 (needed: 0.1.14.post1)" in finding.measured


def test_a_missing_extra_is_skipped_with_its_purpose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    finding = distributions.extra("boto3")
    assert finding.verdict is Verdict.SKIPPED
    assert finding.advice == ('for remote caches in buckets, and s3_file: python -m pip install "mlcbuild[s3]"',)


def test_an_extra_whose_import_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(distributions.EXTRAS, "boto3", ("nobody_has_this_module", "s3", "buckets"))
    finding = distributions.extra("boto3")
    assert finding.verdict is Verdict.ERROR
    assert "its import fails: ModuleNotFoundError: No module named" in finding.measured
    again = f"--force-reinstall --no-deps boto3=={importlib.metadata.version('boto3')}"
    assert finding.advice == (f"install it again: python -m pip install {again}",)
