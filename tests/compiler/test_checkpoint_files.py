"""Which files of a directory are the checkpoint: the index decides, and what it names must be there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from mlcbuild.compiler.weights.source import open_source
from mlcbuild.errors import StageError


def shard(directory: Path, file: str, **tensors: float) -> None:
    save_file({name: np.full(2, value, np.float32) for name, value in tensors.items()}, directory / file)


def index(directory: Path, **files: str) -> None:
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


@pytest.mark.parametrize("stray", ["model-4bit.safetensors", "consolidated.safetensors"])
def test_files_beside_those_of_the_index_are_not_read(tmp_path: Path, stray: str) -> None:
    shard(tmp_path, "model-00001-of-00002.safetensors", w=1)
    shard(tmp_path, "model-00002-of-00002.safetensors", x=2)
    shard(tmp_path, stray, w=9, y=9)
    index(tmp_path, w="model-00001-of-00002.safetensors", x="model-00002-of-00002.safetensors")
    source = open_source(tmp_path)
    found = {name: source.read(name).numbers("float32").tolist() for name in source.descriptions}
    assert found == {"w": [1, 1], "x": [2, 2]}


def test_an_index_whose_files_are_not_there_is_refused_with_their_names(tmp_path: Path) -> None:
    """A part of a download that is missing, or an index of before the checkpoint was split anew."""
    shard(tmp_path, "model-00001-of-00002.safetensors", w=1)
    index(tmp_path, w="model-00001-of-00002.safetensors", x="model-00002-of-00002.safetensors")
    with pytest.raises(StageError, match=r"model-00002-of-00002\.safetensors', which is not there"):
        open_source(tmp_path)


def test_a_tensor_that_its_file_lacks_is_refused(tmp_path: Path) -> None:
    shard(tmp_path, "a.safetensors", w=1)
    index(tmp_path, w="a.safetensors", x="a.safetensors")
    with pytest.raises(StageError, match=r"places the tensor x in a\.safetensors, which lacks it"):
        open_source(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"<html>"], ids=["empty", "zeros", "page"])
def test_what_a_broken_download_leaves_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(StageError, match=r"model\.safetensors"):
        open_source(tmp_path)
