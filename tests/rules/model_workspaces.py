"""A workspace with a model, for tests of what rules announce."""

from __future__ import annotations

import json
from pathlib import Path

from mlcbuild.engine.action import DerivedArtifact, Input
from tests.compiler.tiny_llama import TINY_LLAMA
from tests.rules.world import write

TOOL = '[[tool]]\nname = "sh"\npath = "/bin/sh"\narguments = ["-eu"]\n'


MODEL = """
[[platform]]
name = "v3"
kind = "cpu"
cpu = "x86-64-v3"

[[model]]
name = "m"
source = "weights"

[[model]]
name = "shape"
config = "config.json"
"""


CONFIG = json.dumps(TINY_LLAMA)


def maker(item: Input) -> str:
    """The action that makes an input."""
    assert isinstance(item.artifact, DerivedArtifact)
    return item.artifact.action


def model_workspace(root: Path, targets: str, **files: str) -> Path:
    return write(
        root,
        {
            "models/BUILD.toml": MODEL + targets,
            "models/config.json": CONFIG,
            "models/weights/config.json": CONFIG,
            "models/weights/model.safetensors": "",
            **files,
        },
    )


CUDA = """
[[platform]]
name = "gpu"
kind = "cuda"
arch = ["sm_90a", "sm_80"]

[[model_library]]
name = "on-gpu"
model = ":shape"
quantization = "q4f16_1"
platform = ":gpu"
"""


CUDA_MANIFEST = json.dumps({"version": 1, "kernels": ["kernel_aa"]}).encode()
