"""What a model is observed by on a GPU, whose device functions run on the CPU here, is what the CPU observes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcbuild.compiler.calibration import forward_pass
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.emulated_machine import emulated
from tests.compiler.observing import observed_model, statistics_of
from tests.compiler.pipeline import CUDA_TARGET
from tests.compiler.tiny_models import TINY, checkpoint
from tests.gpu.calibration import BOUNDS, differences

_LLAMA: Mapping[str, Any] = {**TINY, "num_hidden_layers": 1}
_SAMPLES = tuple(tuple(map(int, np.random.default_rng(1).integers(3, 299, length))) for length in (9, 4))


@pytest.mark.slow
@pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")
def test_a_gpu_observes_what_a_cpu_observes(
    tmp_path: Path, programs: Path, kernel_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = checkpoint(_LLAMA)
    on_cpu = observed_model(_LLAMA, tensors, tmp_path / "cpu", kernel_store=kernel_store)
    expected = statistics_of(on_cpu, [_SAMPLES], to=tmp_path / "expected")
    on_gpu = observed_model(
        _LLAMA, tensors, tmp_path / "gpu", target=CUDA_TARGET, kernel_store=kernel_store, architectures=()
    )
    with emulated(on_gpu, programs) as machine:
        monkeypatch.setattr(forward_pass, "Machine", lambda *_, **__: machine)
        found = statistics_of(on_gpu, [_SAMPLES], to=tmp_path / "found")
    errors = differences(expected, found)
    assert all(error <= BOUNDS[kind] for kind, error in errors.items()), errors
