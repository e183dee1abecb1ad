"""CheckWeights: which weights a function takes; and what a comparison gives the KV cache of a layer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from mlcbuild.compiler.environments.programs import reference_onnx
from mlcbuild.compiler.environments.programs.check_weights import run


def checked(folder: Path, *files: dict[str, np.ndarray], wanted: tuple[str, ...]) -> dict[str, np.ndarray]:
    weights = []
    for number, each in enumerate(files):
        weights.append(folder / f"{number}.safetensors")
        save_file(each, weights[-1])
    described = [{"name": name, "type": "float32", "shape": [2]} for name in wanted]
    description = folder / "model.json"
    description.write_text(json.dumps({"weights": described}))
    out = folder / "weights.npz"
    run(weights=tuple(weights), description=description, checked=out)
    with np.load(out) as opened:
        return dict(opened)


def test_weights_of_several_files_whatever_they_are_called(tmp_path: Path) -> None:
    first, second = np.array([1, 2], "f4"), np.array([3, 4], "f4")
    found = checked(tmp_path, {"file": first}, {"b": second}, wanted=("file", "b"))
    assert sorted(found) == ["b", "file"]
    assert np.array_equal(found["file"], first)
    assert np.array_equal(found["b"], second)


def test_a_weight_that_two_files_have_is_told(tmp_path: Path) -> None:
    values = np.zeros(2, "f4")
    with pytest.raises(SystemExit, match=r"w is in 1\.safetensors and in a file before it"):
        checked(tmp_path, {"w": values}, {"w": values}, wanted=("w",))


def test_new_tokens_come_behind_what_the_cache_holds() -> None:
    arrays = {"positions": np.zeros(3, "i4"), "past_keys": np.zeros((1, 2, 8, 4), "f4"), "hidden": np.zeros((1, 3, 8))}
    reference_onnx._place_in_cache(arrays)
    assert arrays["positions"].tolist() == [6, 7, 8]
    assert arrays["positions"].dtype == np.int32
    other = {"positions": np.array([1, 0])}
    reference_onnx._place_in_cache(other)
    assert other["positions"].tolist() == [1, 0], "a model without a cache"
