"""compile_comparison: several compilers' builds of one model, each run by its own runtime, side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.compilers.compiler_world import BOUND, HERE_LEVEL, MODELS, CompilerWorld

QUICK: dict[str, Any] = {"rounds": 2, "seconds": 0.02, "threads": 1}


def comparison_world(folder: Path, *compilers: str) -> CompilerWorld:
    """Each model by each compiler, MODEL-COMPILER."""
    world = CompilerWorld(folder, *(each for each in compilers if each != "onnxruntime"))
    attributes: dict[str, tuple[str, dict[str, str]]] = {
        "onnxruntime": ("ort_model", {}),
        "openvino": ("openvino_model", {"form": "ir"}),
        "iree": ("iree_module", {"cpu": HERE_LEVEL}),
        "tvm": ("relax_module", {"cpu": HERE_LEVEL}),
    }
    for model in MODELS:
        for compiler in compilers:
            rule, more = attributes[compiler]
            world.table(rule, f"{model}-{compiler}", model=f":{model}", environment=f":{compiler}", **more)
    return world


def measured(world: CompilerWorld, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(world.output(f"{name}/measured.json").read_text())
    return document


@pytest.mark.exhaustive
@pytest.mark.parametrize("model", MODELS)
def test_all_compilers_compute_what_float64_does(tmp_path: Path, model: str) -> None:
    compilers = ("onnxruntime", "openvino", "iree", "tvm")
    world = comparison_world(tmp_path, *compilers)
    more: dict[str, Any] = {"sizes": {"batch": [1, 8]}} if model == "mlp" else {}
    world.table(
        "compile_comparison",
        "compared",
        model=f":{model}",
        builds=[f":{model}-{compiler}" for compiler in compilers],
        environment=":onnxruntime",
        **more,
        **QUICK,
    )
    done = world.build("//:compared")
    assert done.code == 0, done.err
    for each in measured(world, "compared")["models"]:
        for case in each["cases"]:
            assert case["error"] < BOUND, each
            assert case["largest"] > 0.1


@pytest.mark.exhaustive
def test_tvm_alone_makes_equal_bytes_in_another_surrounding(tmp_path: Path) -> None:
    world = comparison_world(tmp_path, "tvm")
    done = world.build("--check-determinism", "--keep-going", *(f"//:{model}-tvm" for model in MODELS))
    assert done.code == 0, done.err
