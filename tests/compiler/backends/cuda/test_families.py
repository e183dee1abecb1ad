"""Small models of families go through all phases for GPUs, quantized: no GPU is needed for that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tvm import tirx

from mlcbuild.compiler import ir
from tests.compiler.pipeline import CUDA_TARGET, compile_graph
from tests.gpu.models import MODELS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_quantized_model_becomes_kernels(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name} | MODELS[name]))
    compile_graph("q4f16_1", CUDA_TARGET, tmp_path)
    functions = dict(ir.load_module(tmp_path / "phase3.json").functions_items())
    assert sum(isinstance(function, tirx.PrimFunc) for function in functions.values()) > 10
