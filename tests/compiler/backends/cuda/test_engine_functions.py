"""What engines look up in a library for a GPU does what they expect: its device functions run on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.emulated_machine import emulated
from tests.compiler.engine_libraries import ACTIVE, LIBRARIES, compile_case
from tests.compiler.pipeline import CUDA_TARGET
from tests.engine_checks import checks_of
from tests.engine_functions import Engine, expected_functions

CASES = [
    ("llama", "q4f16_1"),
    *(
        pytest.param(name, quantization, marks=pytest.mark.exhaustive)
        for name, quantization in (
            ("llama", "q0f32"),
            ("gemma2", "q0f16"),
            ("olmoe", "q4f16_1"),
            ("deepseek_v2", "q0f16"),
            ("deepseek_v3", "q0f32"),
            ("mamba2", "q0f32"),
            ("mamba2", "q4f16_1"),
            ("qwen3_5", "q0f32"),
            ("bert", "q0f32"),
            ("qwen3-embedding", "q0f32"),
            ("qwen3-embedding", "q4f16_1"),
        )
    ),
]
BATCH = 3


@pytest.mark.slow
@pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")
@pytest.mark.parametrize(("name", "quantization"), CASES)
def test_a_library_for_gpus_has_what_engines_look_up_and_it_does_what_they_expect(
    name: str, quantization: str, tmp_path: Path, programs: Path, kernel_store: Path
) -> None:
    case = LIBRARIES[name]
    compile_case(case, CUDA_TARGET, tmp_path, quantization=quantization, kernel_store=kernel_store, architectures=())
    with emulated(tmp_path, programs) as machine:
        engine = Engine(machine)
        assert engine.kind is case.kind
        assert engine.active == ACTIVE
        assert engine.functions == expected_functions(case.kind, gpu=True, hidden_states=case.hidden_states)
        for check in checks_of(case.kind, gpu=True, hidden_states=case.hidden_states):
            check(engine, np.random.default_rng(0), BATCH)
