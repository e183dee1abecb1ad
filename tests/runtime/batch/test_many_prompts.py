"""A batch of 256 prompts on a real model has the logits of each prompt alone, and is faster."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.batch_speed import measure
from tests.runtime.tiny_package import build_package
from tests.smollm2 import smollm2_gguf


@pytest.mark.slow
@pytest.mark.exhaustive
def test_256_prompts_of_smollm2(tmp_path: Path, kernel_store: Path) -> None:
    package = build_package(smollm2_gguf(), tmp_path, quantization="q4f32_1", kernel_store=kernel_store)
    # Two threads that wait for each other take many times as long where other processes have the processors.
    measured = measure(package, prompts=256, threads=1)
    print(measured)
    assert measured.largest_difference <= measured.bound
    assert measured.processor_ratio > 1
