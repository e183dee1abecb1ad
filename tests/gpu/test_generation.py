"""What `python -m tests.gpu.generation` does on a GPU, on this processor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compiler.pipeline import CPU_TARGET
from tests.gpu import generation

pytestmark = pytest.mark.slow


CASES = [
    ("llama", "q0f32"),
    *(
        pytest.param(name, quantization, marks=pytest.mark.exhaustive)
        for quantization in ("q0f32", "q4f16_1")
        for name in generation.FAMILIES
        # What reads the cache of latent vectors is not quantized, so that no single reference exists.
        if (name, quantization) not in (("llama", "q0f32"), ("deepseek_v3", "q4f16_1"))
    ),
]


@pytest.mark.parametrize(("name", "quantization"), CASES)
def test_batches_and_chats_are_those_of_transformers(
    name: str, quantization: str, tmp_path: Path, kernel_store: Path
) -> None:
    generation.prepare(name, tmp_path, quantization=quantization, target=CPU_TARGET, kernel_store=kernel_store)
    errors = generation.check(name, tmp_path)
    assert max(errors.values()) == errors["bound"], errors
    told = json.loads((tmp_path / f"{name}.json").read_text())
    assert sum(len(each["tokens"]) for each in told["batch"]) >= 20
    told["turns"][-1]["tokens"][0] += 1
    (tmp_path / f"{name}.json").write_text(json.dumps(told))
    assert generation.check(name, tmp_path)["other_tokens"] == 1
