"""Workloads run on a model: what is timed, and which calls are told of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from mlcbuild.errors import UsageError
from mlcbuild.runtime.bench.call_clock import REPLAY, CallClock
from mlcbuild.runtime.bench.device_speed import copied_bytes_a_second, operations_a_second
from mlcbuild.runtime.bench.measuring import call_times, measure
from mlcbuild.runtime.bench.random_weights import random_weights
from mlcbuild.runtime.bench.workload import Phase, Speed, Workload
from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.logits import Logits
from mlcbuild.runtime.machine import Machine
from mlcbuild.runtime.model import Model
from mlcbuild.runtime.sampling import Sampler
from mlcbuild.runtime.token_chooser import ChosenTokens, TokenChooser


@pytest.fixture(scope="module")
def model(tiny_package: Path) -> Model:
    return Model(tiny_package / "lib.so", random_weights, threads=1)


def _workload(phase: Phase, *, batch: int = 1, tokens: int = 20, context: int = 0) -> Workload:
    return Workload(phase=phase, batch=batch, tokens=tokens, context=context)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize(("phase", "context"), [(Phase.PREFILL, 0), (Phase.PREFILL, 18), (Phase.DECODE, 18)])
def test_each_round_is_timed(model: Model, phase: Phase, context: int, batch: int) -> None:
    workload = _workload(phase, batch=batch, context=context)
    speed = measure(model, workload, rounds=4)
    assert len(speed.seconds) == 4
    assert min(speed.seconds) > 0
    at_once = 20 if phase is Phase.PREFILL else 1
    assert speed.tokens_a_second == pytest.approx(batch * at_once / speed.median)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 4])
def test_nothing_is_prepared_behind_the_last_token(model: Model, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a device chooses tokens, passes are prepared before they are known; 16 tokens fill a page of the cache."""

    def on_device(chooser: TokenChooser, logits: Logits, samplers: Sequence[Sampler | None]) -> ChosenTokens:
        tokens = [sampler.choose(row) if sampler else 0 for row, sampler in zip(logits.numpy(), samplers, strict=True)]
        return ChosenTokens(on_device=model.machine.tensor(np.array(tokens, np.int32)))

    monkeypatch.setattr(TokenChooser, "begin_to_choose", on_device)
    workload = _workload(Phase.DECODE, batch=batch, tokens=8, context=8)
    assert len(measure(model, workload, rounds=20).seconds) == 20


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "passes"), [(Phase.PREFILL, 2), (Phase.DECODE, 1)])
@pytest.mark.parametrize("batch", [1, 2])
def test_calls_are_those_of_one_pass_of_all_layers(model: Model, phase: Phase, passes: int, batch: int) -> None:
    """A prompt of 20 tokens takes two chunks of 16; so do two of them, where it is three."""
    calls = call_times(model, _workload(phase, batch=batch, context=5))
    attended = sum(call.calls for call in calls if "attention_kv_cache_attention" in call.name)
    assert attended == 2 * (3 if batch == 2 and phase is Phase.PREFILL else passes)
    kernels = [call for call in calls if call.name.startswith("kernel_")]
    assert kernels
    assert all(call.bytes > 0 and call.seconds > 0 and call.shapes for call in kernels)


class _Replaying:
    """A machine whose library replays a graph of one kernel, as `Machine` tells of its calls."""

    def __init__(self) -> None:
        self.device = SimpleNamespace(sync=lambda: None)
        self.ran: list[str] = []

    def tell_of_calls(self, hear: Callable[[str, bool, tuple[Any, ...]], int] | None) -> None:
        self.hear = hear

    def function(self, name: str) -> Callable[..., object]:
        assert name == "vm.builtin.invoke_closure"
        return lambda _machine, captured, *given: captured(*given)

    def call(self, name: str, *arguments: Any) -> None:
        assert self.hear is not None
        self.hear(name, True, arguments)
        self.ran.append(name)
        self.hear(name, False, arguments)


def test_kernels_of_a_graph_are_told_of_before_it_is_replayed() -> None:
    machine = _Replaying()
    with CallClock(cast("Machine", machine)) as clock:
        machine.call(REPLAY, "the machine", lambda given: machine.call("kernel_a", given), ["given"], 0)
    assert machine.ran == ["kernel_a", REPLAY]
    assert [(call.name, call.calls) for call in clock.times()] == [("kernel_a", 1), (REPLAY, 1)]


@pytest.mark.slow
def test_nothing_is_told_after_the_clock(model: Model) -> None:
    model.reset(capacity=8)
    with CallClock(model.machine) as clock:
        model.prefill([1, 2])
    before = clock.times()
    model.prefill([3])
    assert before
    assert clock.times() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (_workload(Phase.PREFILL, tokens=65), "65 tokens of a sequence do not fit the model's context of 64"),
        (_workload(Phase.DECODE, tokens=30, context=40), "70 tokens of a sequence"),
        (_workload(Phase.DECODE, batch=10_000), "a batch of 10000 is more than the library's"),
    ],
)
def test_what_has_no_room_is_refused(model: Model, workload: Workload, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        measure(model, workload, rounds=1)


@pytest.mark.slow
def test_memory_is_copied(model: Model) -> None:
    assert copied_bytes_a_second(model.machine, "cpu", threads=2) > 1e8


def test_devices_whose_arithmetic_is_known() -> None:
    assert operations_a_second("NVIDIA H200") == operations_a_second("NVIDIA H100 80GB HBM3") == 989e12
    assert operations_a_second("AMD EPYC") == 0


def test_the_median_of_rounds_counts() -> None:
    speed = Speed(workload=_workload(Phase.DECODE, batch=4), seconds=(0.2, 0.1, 0.4))
    assert (speed.median, speed.tokens_a_second) == (0.2, 20.0)
    assert speed.spread == pytest.approx(1.5)


def test_random_weights_have_the_shapes_and_types_that_are_wanted() -> None:
    wanted = [
        ExpectedTensor(name="a.q_weight", shape=(8, 4), dtype="uint32"),
        ExpectedTensor(name="a.q_scale", shape=(8, 1), dtype="float16"),
        ExpectedTensor(name="norm.weight", shape=(16,), dtype="bfloat16"),
        ExpectedTensor(name="b.weight", shape=(4, 16), dtype="float8_e4m3fn"),
        ExpectedTensor(name="b.weight_scale", shape=(), dtype="float32"),
    ]
    arrays = list(random_weights(wanted))
    assert [(array.shape, str(array.dtype)) for array in arrays] == [(each.shape, each.dtype) for each in wanted]
    assert all(np.isfinite(array.astype(np.float32)).all() for array in arrays)
    again = list(random_weights(wanted))
    assert all(
        np.array_equal(one.view(np.uint8), other.view(np.uint8))
        for one, other in zip(arrays[:4], again[:4], strict=True)
    )
