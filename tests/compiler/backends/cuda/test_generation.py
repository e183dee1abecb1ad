"""Packages for GPUs generate what transformers generates: batches and turns of a chat, by device functions that run on
the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.runtime import model
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.emulated_machine import emulated
from tests.compiler.pipeline import CUDA_TARGET
from tests.gpu import generation


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")
@pytest.mark.parametrize(
    ("name", "quantization"), [("llama", "q4f16_1"), *((name, "q0f32") for name in generation.FAMILIES)]
)
def test_batches_and_chats_on_a_gpu(
    name: str,
    quantization: str,
    tmp_path: Path,
    programs: Path,
    kernel_store: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generation.prepare(
        name,
        tmp_path,
        quantization=quantization,
        target=CUDA_TARGET,
        kernel_store=kernel_store,
        architectures=(),
    )
    with emulated(tmp_path / name / "work" / "library", programs) as machine:
        monkeypatch.setattr(model, "Machine", lambda *_, **__: machine)
        errors = generation.check(name, tmp_path)
    assert max(errors.values()) == errors["bound"], errors
