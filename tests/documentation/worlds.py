"""The folders that pages are followed in. A page names one: `<!-- world: tiny_model -->`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.compiler.tiny_models import TINY, checkpoint, write_config, write_gguf

PROJECT = Path(__file__).parents[2]
_ROOT = '[workspace]\nname = "example"\n\n[[tool]]\nname = "sh"\npath = "/bin/sh"\n'
NAME_OF_THE_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


def empty(root: Path) -> None:
    """An empty folder."""


def tiny_model(root: Path) -> None:
    """A llama of two layers as a GGUF file, under the name of the model that the tutorial uses. It builds in 20 s."""
    write_gguf(root / NAME_OF_THE_MODEL, checkpoint())


def models(root: Path) -> None:
    """A workspace in whose package `models` a llama of two layers has the name of a model, and a package of it; so has
    an encoder. The llama's kernels are those of `tiny_model`, but its context is long enough for requests that do not
    say how long they are.
    """
    from tests.runtime.embedding.tiny_embedder import random_encoder, write_encoder_of

    (root / "models").mkdir()
    write_gguf(root / "models/tiny.gguf", checkpoint(), {**TINY, "max_position_embeddings": 1024})
    write_encoder_of(root / "models/encoder", random_encoder())
    (root / "BUILD.toml").write_text('[workspace]\nname = "example"\n', encoding="utf-8")
    (root / "models/BUILD.toml").write_text(_MODELS, encoding="utf-8")


_MODELS = """\
[[model]]
name = "smollm2-135m"
source = "tiny.gguf"

[[model_package]]
name = "smollm2-135m-cpu"
model = ":smollm2-135m"
quantization = "q4f16_1"
platform = "@platforms//:cpu"

[[model]]
name = "minilm"
source = "encoder"

[[model_package]]
name = "minilm-cpu"
model = ":minilm"
quantization = "q0f32"
platform = "@platforms//:cpu"
"""


def calibration(root: Path) -> None:
    """The world `models`, with the texts of this repository that models are observed on."""
    models(root)
    shutil.copytree(PROJECT / "models/calibration", root / "models/calibration")


def tiny_config(root: Path) -> None:
    """A workspace with the `config.json` of a llama of two layers, which needs no weights."""
    write_config(root / "config.json", TINY)


def commands(root: Path) -> None:
    """Two targets that the shell makes in no time, in a repository of Git whose branch main they are."""
    (root / "BUILD.toml").write_text(_ROOT, encoding="utf-8")
    (root / "models").mkdir()
    (root / "models/BUILD.toml").write_text("\n".join(map(_command, ("small", "big"))), encoding="utf-8")
    _commit(root)


def _command(name: str) -> str:
    arguments = ["-c", f"echo {name} > {{outputs}}"]
    return f'[[command]]\nname = "{name}"\ntool = "//:sh"\narguments = {json.dumps(arguments)}\noutputs = ["out"]\n'


def this_repository(root: Path) -> None:
    """The files of this checkout that git tracks, in a repository of Git whose first commit they are."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if os.path.lexists(PROJECT / name):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, root / name, follow_symlinks=False)
    _commit(root)


def _commit(root: Path) -> None:
    (root / ".gitignore").write_text("/mlcbuild-out/\n/.mlcbuild/\n", encoding="utf-8")
    for arguments in (("init", "--quiet", "--initial-branch=main"), ("add", "--all"), (*_AUTHOR, *_COMMIT)):
        subprocess.run(["git", *arguments], cwd=root, check=True)


WORLDS: Mapping[str, Callable[[Path], None]] = {
    world.__name__: world for world in (empty, tiny_model, models, calibration, tiny_config, commands, this_repository)
}
_COMMIT = ("commit", "--quiet", "--message", "Begin")
_AUTHOR = ("-c", "user.name=A", "-c", "user.email=a@example.com")
