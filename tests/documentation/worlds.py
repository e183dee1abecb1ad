"""The folders that pages are followed in. A page names one: `<!-- world: tiny_model -->`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.compiler.tiny_models import TINY, checkpoint, write_config, write_gguf

PROJECT = Path(__file__).parents[2]
NAME_OF_THE_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


def empty(root: Path) -> None:
    """An empty folder."""


def tiny_model(root: Path) -> None:
    """A llama of two layers as a GGUF file, under the name of the model that the tutorial uses. It builds in 20 s."""
    write_gguf(root / NAME_OF_THE_MODEL, checkpoint())


def tiny_config(root: Path) -> None:
    """A workspace with the `config.json` of a llama of two layers, which needs no weights."""
    write_config(root / "config.json", TINY)


def this_repository(root: Path) -> None:
    """The files of this checkout that git tracks, in a repository of Git whose first commit they are."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if os.path.lexists(PROJECT / name):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, root / name, follow_symlinks=False)
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    subprocess.run(["git", "add", "--all"], cwd=root, check=True)
    subprocess.run(["git", *_AUTHOR, "commit", "--quiet", "--message", "Begin"], cwd=root, check=True)


WORLDS: Mapping[str, Callable[[Path], None]] = {
    world.__name__: world for world in (empty, tiny_model, tiny_config, this_repository)
}
_AUTHOR = ("-c", "user.name=A", "-c", "user.email=a@example.com")
