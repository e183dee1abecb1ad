"""The recurrence of layers with a state, on a GPU: the numbers of the kernel's own CUDA text, run on the CPU, against
NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm

from mlcbuild.compiler.backends.cuda.kernels.library import schedule_fallback
from mlcbuild.compiler.backends.cuda.kernels.state_scan import schedule_state_scan
from mlcbuild.compiler.kernels.state_scan import StateScan, scan_kernel
from mlcbuild.compiler.kernels.state_slots import read_states, write_states
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import run_cuda
from tests.compiler.state_scans import SCANS, inputs, outputs

pytestmark = pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")


@pytest.mark.parametrize(
    "scan",
    [pytest.param(scan, marks=() if place in (1, 2) else pytest.mark.exhaustive) for place, scan in enumerate(SCANS)],
)
def test_states_are_what_numpy_makes_of_them(tmp_path: Path, scan: StateScan) -> None:
    func = schedule_state_scan(scan_kernel(scan), tvm.target.Target(cuda_emulation.CUDA_TARGET))
    assert func is not None
    given = inputs(scan)
    y, states = np.zeros((len(given[0]), scan.heads * scan.rows), np.float32), np.zeros_like(given[3])
    found = run_cuda(func, [*given, y, states], tmp_path)[-2:]
    for made, expected in zip(found, outputs(scan, *given), strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)


def test_states_are_read_from_their_slots_and_the_next_ones_written(tmp_path: Path) -> None:
    target = tvm.target.Target(cuda_emulation.CUDA_TARGET)
    random = np.random.default_rng(0)
    storage = random.standard_normal((5, 3, 600)).astype(np.float32)
    slots, now = np.array([4, 0], np.int32), np.array([2, 0], np.int32)
    new = random.standard_normal((2, 600)).astype(np.float32)
    with target:
        reading, writing = (schedule_fallback(make(600, "float32"), target) for make in (read_states, write_states))
    assert (run_cuda(reading, [storage, slots, now, np.zeros_like(new)], tmp_path)[3] == storage[slots, now]).all()
    expected = storage.copy()
    expected[slots, (now + 1) % 3] = new
    assert (run_cuda(writing, [storage, slots, now, new], tmp_path)[0] == expected).all()
