"""A missing compiler is an error before anything runs, also if only discovered actions need it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import main
from mlcbuild.toolchains.entries import nvfatbin, nvrtc
from mlcbuild.toolchains.toolchain import DistributionToolchain

PROJECT = Path(__file__).parents[2]
WORKSPACE = """
[workspace]
name = "gpu"

[[platform]]
name = "cuda"
kind = "cuda"
arch = ["sm_80", "sm_90"]

[[model]]
name = "shape"
config = "config.json"

[[model_library]]
name = "library"
model = ":shape"
quantization = "q4f16_1"
platform = ":cuda"
"""


@pytest.mark.parametrize("entry", [nvrtc, nvfatbin])
def test_cudas_compilers_are_looked_for_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], entry: ModuleType
) -> None:
    (tmp_path / "BUILD.toml").write_text(WORKSPACE)
    (tmp_path / "config.json").write_bytes((PROJECT / "models/tinyllama-1.1b/config.json").read_bytes())
    monkeypatch.chdir(tmp_path)
    toolchain = entry.TOOLCHAIN
    assert isinstance(toolchain, DistributionToolchain)
    monkeypatch.setattr(entry, "TOOLCHAIN", replace(toolchain, distributions=("nvidia-never-published",)))
    code = main(["build", "//:library", "--disk-cache", str(tmp_path / "cache")])
    told = capsys.readouterr().err
    assert code == ExitCode.LOCAL_ENVIRONMENT
    assert "building for CUDA needs nvidia-never-published, which is not installed beside" in told
    assert 'run: python -m pip install "mlcbuild[cuda]"' in told
    assert "Export" not in told
