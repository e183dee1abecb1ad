"""GGUF files of the families: llama.cpp loads a file with the names and shapes that a family reads, its metadata give
the configuration of the model, and llama.cpp's logits are those of the library that is built from the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.rules.families import families
from tests.compiler.family_results import SUFFIX, record
from tests.compiler.gguf_cases import CASES
from tests.compiler.gguf_parity import largest_error, read_file
from tests.compiler.gguf_writing import file_of
from tests.compiler.llama_cpp import LlamaCppModel
from tests.compiler.resolving import model_of, parameters_of


@pytest.mark.parametrize("name", CASES)
def test_a_file_that_llama_cpp_loads_gives_the_models_configuration(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    path = file_of(tmp_path / "m.gguf", case)
    document = read_file(path).document
    assert document["model_type"] == case.config["model_type"]
    assert parameters_of(document) == parameters_of(case.config)
    found, wanted = model_of(document).configuration, model_of(case.config).configuration
    scales = {"residual_scale", "logit_scale"} & found.keys()  # of float32 numbers in a file
    for scale in scales:
        assert found[scale] == pytest.approx(wanted[scale], rel=1e-6)
    assert {**found, **dict.fromkeys(scales)} == {**wanted, **dict.fromkeys(scales)}
    LlamaCppModel(path).close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if case.in_ci else pytest.mark.exhaustive)
        for name, case in CASES.items()
        if case.bound is not None
    ],
)
def test_logits_are_those_of_llama_cpp(name: str, tmp_path: Path, kernel_store: Path) -> None:
    error = largest_error(CASES[name], tmp_path, kernel_store=kernel_store)
    record(f"{name}{SUFFIX}", CASES[name], error)


def test_every_architecture_has_a_case() -> None:
    # Encoders have no logits: test_encoder_gguf.py has theirs.
    decoders = [family for family in families() if family.kv_state_kind != "none"]
    read = {architecture for family in decoders for architecture in family.gguf}
    assert read == {case.architecture for case in CASES.values()}
