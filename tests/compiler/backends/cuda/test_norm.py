"""Norms on a GPU: which become one kernel with the addition in front of them, and the numbers of the kernels' own CUDA
text, run on the CPU, against NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm
from tvm import relax, tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler.backends.cuda.kernels import norm
from mlcbuild.compiler.backends.cuda.passes.fuse_add_rms_norm import fuse_add_rms_norm
from mlcbuild.compiler.stages import export, phase1
from tests.compiler import schemes
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import run_cuda
from tests.compiler.pipeline import CPU_TARGET, CUDA_TARGET, backend_passes
from tests.compiler.resolving import model_builders, write_resolved
from tests.compiler.tiny_llama import TINY_LLAMA

Array = npt.NDArray[Any]

EPSILON = 1e-5
needs_gxx = pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")
SIZES = [(4096, "float16"), (576, "float16"), (1000, "float16"), (37, "float16"), (8200, "float32"), (64, "float32")]
WIDTH = 64


def _normed(x: Array, weight: Array) -> Array:
    wide = x.astype(np.float64)
    result: Array = wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + EPSILON) * weight
    return result


def _rows(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@needs_gxx
@pytest.mark.parametrize(("width", "dtype"), SIZES)
def test_rows_of_any_length_are_normed(tmp_path: Path, width: int, dtype: str) -> None:
    x, weight = _rows((1, 3, width), dtype, 0), _rows((width,), dtype, 1)
    got = run_cuda(norm.rms_norm(width, dtype, EPSILON), [x, weight, np.zeros_like(x)], tmp_path)[-1]
    np.testing.assert_allclose(got, _normed(x, weight), rtol=1e-3 if dtype == "float16" else 1e-5, atol=1e-6)


@needs_gxx
@pytest.mark.parametrize("shape", [(1, 3), (2, 1)])
@pytest.mark.parametrize(("width", "dtype"), SIZES)
def test_rows_of_any_length_are_added_and_normed(
    tmp_path: Path, width: int, dtype: str, shape: tuple[int, int]
) -> None:
    x, y = (_rows((*shape, width), dtype, seed) for seed in (0, 1))
    weight = _rows((width,), dtype, 2)
    arrays = [x, y, weight, np.zeros_like(x), np.zeros_like(x)]
    *_, total, got = run_cuda(norm.add_rms_norm(width, dtype, EPSILON), arrays, tmp_path)
    assert (total == x + y).all()
    np.testing.assert_allclose(got, _normed(x + y, weight), rtol=1e-3 if dtype == "float16" else 1e-5, atol=1e-6)


@pytest.mark.parametrize(("width", "dtype"), [(64, "float64"), (64, "int32"), (0, "float32")])
def test_rows_that_there_is_no_norm_for_are_refused(width: int, dtype: str) -> None:
    with pytest.raises(ValueError, match=f"a norm of rows of {width} '{dtype}'"):
        norm.rms_norm(width, dtype, EPSILON)


def _module(*, add: bool = True, dtype: str = "float16", made_weight: bool = False) -> tvm.IRModule:
    """(x, y, weight) → what is normed, and twice its norm."""
    builder = relax.BlockBuilder()
    rows = tirx.Var("n", "int64")
    x, y = (relax.Var(name, relax.TensorType((1, rows, WIDTH), dtype)) for name in "xy")
    weight = relax.Var("weight", relax.TensorType((WIDTH,), dtype))
    with builder.function("main", [x, y, weight]):
        with builder.dataflow():
            total = builder.emit(relax.op.add(x, y) if add else relax.op.multiply(x, y))
            scale = builder.emit(relax.op.add(weight, weight)) if made_weight else weight
            normed = builder.emit(relax.op.nn.rms_norm(total, scale, -1, EPSILON))
            result = builder.emit_output(relax.Tuple([total, builder.emit(relax.op.add(normed, normed))]))
        builder.emit_func_output(result)
    return builder.finalize()


def _calls(function: relax.Function) -> list[str]:
    """The operators, and the kernels by name, in order."""
    values = [binding.value for block in function.body.blocks for binding in block.bindings]
    calls = [value for value in values if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)]
    return [str(call.args[0].name_hint) if call.op.name == "relax.call_tir" else str(call.op.name) for call in calls]


def test_a_sum_and_its_norm_become_one_kernel() -> None:
    fused = fuse_add_rms_norm(_module())
    assert _calls(fused["main"]) == ["add_rms_norm", "relax.add"]
    relax.analysis.well_formed(fused)


def test_a_norm_of_what_is_no_sum_is_a_kernel_of_its_own() -> None:
    assert _calls(fuse_add_rms_norm(_module(add=False))["main"]) == ["relax.multiply", "rms_norm", "relax.add"]


def test_a_norm_whose_weight_comes_after_the_sum_is_a_kernel_of_its_own() -> None:
    fused = fuse_add_rms_norm(_module(made_weight=True))
    assert _calls(fused["main"]) == ["relax.add", "relax.add", "rms_norm", "relax.add"]


def test_norms_of_a_type_that_there_is_no_kernel_for_stay() -> None:
    module = _module(dtype="bfloat16")
    assert _calls(fuse_add_rms_norm(module)["main"]) == _calls(module["main"])


def _phase1(directory: Path, target: Mapping[str, object]) -> tvm.IRModule:
    """A tiny llama behind Phase1."""
    write_resolved(directory, TINY_LLAMA)
    level: dict[str, Any] = {"target": dict(target)}
    at = directory.joinpath
    scheme = schemes.scheme("q4f16_1")
    export.run(
        model=at("model.json"),
        parameters=at("parameters.json"),
        module=at("export.json"),
        metadata=at("metadata.json"),
        models=model_builders(),
        scheme=scheme,
        reader=schemes.reader_class(scheme),
    )
    phase1.run(module=at("export.json"), module_out=at("phase1.json"), backend=backend_passes(target, 1), **level)
    return ir.load_module(at("phase1.json"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tvm.IRModule:
    return _phase1(tmp_path_factory.mktemp("llama"), CUDA_TARGET)


def test_a_layer_has_two_sums_and_no_norm_beside_theirs(llama: tvm.IRModule) -> None:
    layers = [function for variable, function in llama.functions_items() if "layer" in variable.name_hint]
    assert len(layers) == 3
    for layer in layers:
        calls = _calls(layer)
        assert calls.count("add_rms_norm") == 2
        assert not {"rms_norm", "relax.nn.rms_norm", "relax.add"} & set(calls)


def test_a_model_norms_once_without_adding(llama: tvm.IRModule) -> None:
    for entry in ("prefill", "decode", "batch_prefill", "batch_decode", "batch_verify"):
        assert _calls(llama[entry]).count("rms_norm") == 1


def test_functions_of_any_number_of_rows_share_the_kernels(llama: tvm.IRModule) -> None:
    names = [str(variable.name_hint) for variable in llama.get_global_vars()]
    assert sorted(name for name in names if "rms_norm" in name) == ["add_rms_norm", "rms_norm"]


def test_cpus_keep_the_sum_where_the_product_is_made(tmp_path: Path) -> None:
    names = {str(variable.name_hint) for variable in _phase1(tmp_path, CPU_TARGET).get_global_vars()}
    assert not any("rms_norm" in name for name in names)
