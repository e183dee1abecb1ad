"""Changing logits on a device: the kernels' numbers against NumPy, for a GPU those of their own CUDA text run on the
CPU, and the functions that hand them on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm
from tvm import relax, tirx

from mlcbuild.compiler.backends.cpu import phase0 as cpu
from mlcbuild.compiler.backends.cpu.kernels import logits as cpu_kernels
from mlcbuild.compiler.backends.cuda import phase0 as cuda
from mlcbuild.compiler.backends.cuda.kernels import logits as cuda_kernels
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import run_cuda
from tests.compiler.kernel_running import run
from tests.compiler.pipeline import CPU_TARGET, CUDA_TARGET

Array = npt.NDArray[Any]

needs_gxx = pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")


@dataclass(frozen=True, kw_only=True)
class Device:
    """A backend's kernels, and what calls one with arrays and gives them back as they are then."""

    kernels: Any
    run: Callable[[tirx.PrimFunc, Sequence[Array]], list[Array]]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gxx)])
def device(request: pytest.FixtureRequest, tmp_path: Path) -> Device:
    if request.param == "cpu":
        return Device(kernels=cpu_kernels, run=run)
    return Device(kernels=cuda_kernels, run=lambda kernel, arrays: run_cuda(kernel, list(arrays), tmp_path))


@pytest.fixture(params=[(cpu.PASSES, CPU_TARGET), (cuda.PASSES, CUDA_TARGET)], ids=["cpu", "cuda"])
def attach(request: pytest.FixtureRequest) -> Callable[[tvm.IRModule], tvm.IRModule]:
    """The two passes of a backend."""
    passes: Passes
    passes, target = request.param
    context = PhaseContext(target=tvm.target.Target(dict(target)))

    def attached(module: tvm.IRModule) -> tvm.IRModule:
        for entry in ("AttachLogitProcessFunc", "AttachSpecDecodeAuxFuncs"):
            module = passes[entry](module, context)
        return module

    return attached


WIDTH = 1003
LOWEST = np.finfo(np.float32).min


def _logits(rows: int) -> Array:
    return np.random.default_rng(0).standard_normal((rows, WIDTH)).astype(np.float32)


def _tokens(count: int) -> Array:
    """Distinct ones, the first and the last among them."""
    between = np.random.default_rng(1).permutation(np.arange(1, WIDTH - 1))[: count - 2]
    return np.concatenate([[0], between, [WIDTH - 1]]).astype(np.int32)


@pytest.mark.parametrize("count", [3, 700])
def test_biases_are_added_to_tokens_of_rows(device: Device, count: int) -> None:
    logits, tokens = _logits(3), _tokens(count)
    rows = np.random.default_rng(2).integers(0, 3, count).astype(np.int32)
    biases = np.random.default_rng(3).standard_normal(count).astype(np.float32)
    got = device.run(device.kernels.add_bias(), [logits, rows, tokens, biases])[0]
    expected = logits.copy()
    expected[rows, tokens] += biases
    assert (got == expected).all()


def test_what_a_sequence_has_said_becomes_less_likely(device: Device) -> None:
    logits, count = _logits(4), 600
    row_of, penalties = np.array([3, 1], np.int32), np.array([[0.5, 0.1, 1.3], [0, 0, 2]], np.float32)
    sequences = np.sort(np.random.default_rng(2).integers(0, 2, count)).astype(np.int32)
    tokens, counts = _tokens(count), np.random.default_rng(4).integers(1, 9, count).astype(np.int32)
    got = device.run(device.kernels.penalize(), [logits, row_of, sequences, tokens, counts, penalties])[0]
    expected = logits.astype(np.float64)
    presence, frequency, repetition = penalties.astype(np.float64)[sequences].T
    left = expected[row_of[sequences], tokens] - presence - counts * frequency
    expected[row_of[sequences], tokens] = np.where(left < 0, left * repetition, left / repetition)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert (got[[0, 2]] == logits[[0, 2]]).all()


def test_tokens_whose_bit_is_0_become_impossible(device: Device) -> None:
    logits, rows = _logits(3), np.array([2, 0], np.int32)
    allowed = np.random.default_rng(5).random((3, WIDTH)) < 0.5
    bits = np.packbits(np.pad(allowed, ((0, 0), (0, -WIDTH % 32))), axis=1, bitorder="little").view(np.int32)
    got = device.run(device.kernels.mask(), [logits, rows, bits])[0]
    expected = logits.copy()
    expected[rows] = np.where(allowed[rows], logits[rows], LOWEST)
    assert (got == expected).all()


@pytest.mark.parametrize("width", [1, WIDTH, 5000])
def test_rows_are_put_into_a_table_and_taken_from_it(device: Device, width: int) -> None:
    random = np.random.default_rng(0)
    table, rows = (random.random((count, width)).astype(np.float32) for count in (6, 2))
    places = np.array([4, 1], np.int32)
    scattered = device.run(device.kernels.scatter_rows("float32"), [rows, places, table])[2]
    assert (scattered[places] == rows).all()
    assert (scattered[[0, 2, 3, 5]] == table[[0, 2, 3, 5]]).all()
    gathered = device.run(device.kernels.gather_rows("float32"), [table, places, rows])[2]
    assert (gathered == table[places]).all()


# MLC-LLM's names and arguments: dimensions and dtype of each, and which is changed.
FUNCTIONS = {
    "apply_logit_bias_inplace": (("2 float32", "1 int32", "1 int32", "1 float32"), 0),
    "apply_penalty_inplace": (("2 float32", "1 int32", "1 int32", "1 int32", "1 int32", "2 float32"), 0),
    "apply_bitmask_inplace": (("2 float32", "1 int32", "2 int32"), 0),
    "scatter_probs": (("2 float32", "1 int32", "2 float32"), 2),
    "gather_probs": (("2 float32", "1 int32", "2 float32"), 2),
}


Attach = Callable[[tvm.IRModule], tvm.IRModule]


def test_functions_have_the_arguments_that_an_engine_gives(attach: Attach) -> None:
    module = attach(tvm.IRModule())
    functions = {str(v.name_hint): f for v, f in module.functions_items() if isinstance(f, relax.Function)}
    assert set(functions) == set(FUNCTIONS)
    for name, (arguments, changed) in FUNCTIONS.items():
        types = [parameter.ty for parameter in functions[name].params]
        assert tuple(f"{kind.ndim} {kind.dtype}" for kind in types) == arguments
        assert functions[name].ret_ty.ndim == types[changed].ndim
        (call,) = [binding.value for block in functions[name].body.blocks for binding in block.bindings]
        assert call.op.name == "relax.call_tir_inplace"
        assert list(call.attrs.inplace_indices) == [changed]
    relax.analysis.well_formed(module)


def test_functions_share_no_sizes_with_their_kernels(attach: Attach) -> None:
    module = attach(tvm.IRModule())
    sizes = {
        kind: {
            size
            for _, function in module.functions_items()
            if isinstance(function, kind)
            for parameter in function.params
            for size in (parameter.shape if kind is tirx.PrimFunc else parameter.ty.shape)
            if isinstance(size, tirx.Var)
        }
        for kind in (tirx.PrimFunc, relax.Function)
    }
    assert not sizes[tirx.PrimFunc] & sizes[relax.Function]
