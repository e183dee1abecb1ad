"""A quantized encoder computes what transformers does with the numbers that the stored weights stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler import schemes
from tests.compiler.encoders import EncoderLibrary, compare_encoder, reference_hidden, texts
from tests.compiler.family_cases import CASES
from tests.compiler.parity import bound
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.running import random_model, store

IN_CI = "q0bf16"  # whose norms TVM has no kernel for


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == IN_CI else pytest.mark.exhaustive) for name in schemes.NAMES],
)
def test_hidden_states_are_within_what_roundings_explain(name: str, tmp_path: Path, kernel_store: Path) -> None:
    config, scheme = dict(CASES["bert"].config), schemes.scheme(name)
    model = random_model(config)
    weights = store(model, scheme)
    path = compile_library(config, name, CPU_TARGET, tmp_path, kernel_store=kernel_store)
    largest = float(np.abs(reference_hidden(model, *texts(config["vocab_size"]))).max())
    library = EncoderLibrary(path, weights)
    relative = bound(config, scheme, largest) / largest
    compare_encoder(library, model, vocabulary=config["vocab_size"], bound=relative)
