"""The recurrence of layers with a state, on a CPU, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from mlcbuild.compiler.backends.cpu.kernels.fallback import schedule_fallback
from mlcbuild.compiler.backends.cpu.kernels.state_scan import schedule_state_scan
from mlcbuild.compiler.kernels.state_scan import StateScan, scan_kernel
from mlcbuild.compiler.kernels.state_slots import read_states, write_states
from tests.compiler.pipeline import CPU_TARGET
from tests.compiler.state_scans import SCANS, Array, inputs, outputs


def _call(func: tvm.tirx.PrimFunc, *arrays: Array) -> list[Array]:
    target = tvm.target.Target(dict(CPU_TARGET))
    built = tvm.tirx.build(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), target=target)
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    built["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("scheduled", [True, False])
def test_states_are_what_numpy_makes_of_them(scan: StateScan, scheduled: bool) -> None:
    func = scan_kernel(scan)
    if scheduled:
        func = schedule_state_scan(func, tvm.target.Target(dict(CPU_TARGET)))
        assert func is not None
    given = inputs(scan)
    y, states = np.zeros((len(given[0]), scan.heads * scan.rows), np.float32), np.zeros_like(given[3])
    found = _call(func, *given, y, states)[-2:]
    for made, expected in zip(found, outputs(scan, *given), strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)


def test_a_kernel_of_another_kind_is_left_alone() -> None:
    assert schedule_state_scan(read_states(3, "float32"), tvm.target.Target(dict(CPU_TARGET))) is None


def test_heads_that_groups_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="3 heads share keys in 2 groups"):
        StateScan(
            heads=3,
            rows=1,
            groups=2,
            columns=1,
            value_at=0,
            key_at=3,
            query_at=5,
            channels=7,
            delta=False,
            dtype="float32",
        )


@pytest.mark.parametrize("history", [1, 3])
def test_states_are_read_from_their_slots_and_the_next_ones_written(history: int) -> None:
    target = tvm.target.Target(dict(CPU_TARGET))
    random = np.random.default_rng(0)
    storage = random.standard_normal((5, history, 6)).astype(np.float32)
    slots, now = np.array([4, 0], np.int32), np.array([history - 1, 0], np.int32)
    read = _call(schedule_fallback(read_states(6, "float32"), target), storage, slots, now, np.zeros((2, 6), "float32"))
    assert (read[3] == storage[slots, now]).all()
    new = random.standard_normal((2, 6)).astype(np.float32)
    expected = storage.copy()
    expected[slots, (now + 1) % history] = new
    assert (_call(schedule_fallback(write_states(6, "float32"), target), storage, slots, now, new)[0] == expected).all()
