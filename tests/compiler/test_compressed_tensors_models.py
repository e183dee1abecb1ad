"""Checkpoints that packages are written as, loaded by transformers: their logits are those of the package."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.errors import StageError
from tests.compiler import schemes
from tests.compiler.family_cases import CASES
from tests.compiler.packaged import checkpoint_of, write_weights
from tests.compiler.parity import check_logits, reference, sequences
from tests.compiler.resolving import model_of, parameters_of
from tests.compiler.rounded_activations import round_activations
from tests.compiler.running import random_model, tensors_of
from tests.compiler.test_compressed_tensors import CONFIG, FORMS, random_tensors, written
from tests.compiler.test_llama_parity import MODELS
from tests.compiler.windowed_cases import WINDOWED
from tests.parity_packages import parity_package

_FAMILIES = {
    name: case
    for name, case in (CASES | WINDOWED).items()
    if not case.reference and "text_config" not in case.config and not model_of(case.config).limits.is_encoder
}
_IN_CI = ("gemma", "gpt2", "mixtral-window", "deepseek_v3", "mamba2")
_FUSED_EXPERTS = ("gpt_oss", "granitemoe", "granitemoeshared", "granitemoehybrid", "llama4_text")


def loaded(folder: Path, config: Mapping[str, Any], *, is_quantized: bool) -> Any:
    """The model of transformers in float32, its weights as the package has them."""
    transformers = parity_package("transformers")
    more = {"quantization_config": transformers.CompressedTensorsConfig(dequantize=True)} if is_quantized else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype="auto", attn_implementation=config.get("attn_implementation", "eager"), **more
        )
    return model.float().eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "q4f16_1" else pytest.mark.exhaustive) for name in FORMS]
)
def test_logits_are_those_of_a_package(name: str, tmp_path: Path, kernel_store: Path) -> None:
    parity_package("compressed_tensors")
    config = MODELS["grouped-64-tied"] if name == "q4f16_1" else CONFIG
    tensors = random_tensors(config)
    folder = written(tmp_path, config, tensors, name)
    model = loaded(folder, config, is_quantized=True)
    scheme = schemes.scheme(name)
    round_activations(model, scheme)
    known = model, schemes.stored(config, scheme, tensors)
    check_logits(dict(config), name, tmp_path, kernel_store=kernel_store, known=known)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in _IN_CI else pytest.mark.exhaustive) for name in _FAMILIES]
)
def test_transformers_loads_checkpoints_of_a_family(name: str, tmp_path: Path) -> None:
    case = _FAMILIES[name]
    parity_package("torch")
    model = random_model(case.model)
    tensors, listed = case.checkpoint(tensors_of(model)), parameters_of(case.config).parameters
    by_name = {source.name: np.array(schemes.tensor_of(tensors, source)) for one in listed for source in one.sources}
    write_weights(tmp_path, case.config, by_name, "q0f32")
    if case.config["model_type"] in _FUSED_EXPERTS and any(one.role is ParameterRole.EXPERTS for one in listed):
        with pytest.raises(StageError, match="all experts of a layer in one tensor"):
            checkpoint_of(tmp_path, "q0f32")
        return
    text = sequences(case.model["vocab_size"])[0]
    found = loaded(checkpoint_of(tmp_path, "q0f32"), case.config, is_quantized=False)
    expected = reference(model, text)
    # Sums of several threads may go in another order.
    np.testing.assert_allclose(reference(found, text), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
