"""Scales of a model's inputs, and what absorbs them, leave its logits as they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcbuild.compiler.calibration.scales import Scales, Scaling
from mlcbuild.compiler.models.checkpoints.operations import AddOne
from mlcbuild.compiler.models.checkpoints.parameters import Parameter, ParameterList
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.weights.operations import carry_out
from tests.compiler import schemes
from tests.compiler.families import BOUND
from tests.compiler.family_case import FamilyCase
from tests.compiler.family_cases import CASES
from tests.compiler.parity import compare, reference, sequences
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.resolving import model_of, parameters_of
from tests.compiler.running import Array, Library, random_model, tensors_of
from tests.compiler.windowed_cases import WINDOWED

IN_CI = ("deepseek_v3",)
"""A mixture with shared experts, and latent queries."""

WRITTEN_BACK_IN_CI = (
    *(
        "llama",
        "gemma",
        "gemma2",
        "gpt_neox",
        "gpt2",
        "stablelm-parallel",
        "cohere",
        "olmo2",
        "nemotron",
        "mixtral-window",
    ),
    *(
        "mixtral-window",
        "qwen2_moe-window",
        "granitemoe",
        "gpt_oss",
        "llama4_text",
        "deepseek_v3",
        "mamba2",
        "qwen3_next",
        "granitemoehybrid",
    ),
)
"""One of each wiring, norm, feed-forward and recurrence."""

_MATRICES = (ParameterRole.LINEAR, ParameterRole.EXPERTS, ParameterRole.ROUTER)


def _random_scaling(listed: ParameterList) -> Scaling:
    random = np.random.default_rng(3)
    scales = {
        one.matrices[0]: np.exp2(random.uniform(-2, 2, one.channels)).astype(np.float32) for one in listed.smoothed
    }
    return Scaling(found=Scales(scales=scales), smoothed=listed.smoothed)


def _scaled(scaling: Scaling, parameter: Parameter, array: Array) -> Array:
    if parameter.role is ParameterRole.EXPERTS:
        return np.stack([scaling.changed(parameter, matrix, number) for number, matrix in enumerate(array)])
    return scaling.changed(parameter, array, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in IN_CI else pytest.mark.exhaustive)
        for name, case in CASES.items()
        if not model_of(case.config).limits.is_encoder
    ],
)
def test_scaling_alone_changes_no_logits(name: str, tmp_path: Path, kernel_store: Path) -> None:
    case = CASES[name]
    model, listed = random_model(case.model), parameters_of(case.config)
    plain = schemes.stored(case.config, schemes.scheme("q0f32"), case.checkpoint(tensors_of(model)))
    scaling = _random_scaling(listed)
    weights = {one.name: _scaled(scaling, one, plain[one.name]) for one in listed.parameters}
    changed = {one.name for one in listed.parameters if (weights[one.name] != plain[one.name]).any()}
    assert changed >= {matrix for one in listed.smoothed for matrix in one.matrices}
    path = compile_library(
        case.config, "q0f32", CPU_TARGET, tmp_path, kernel_store=kernel_store, overrides=case.overrides
    )
    texts = sequences(case.model["vocab_size"])
    expected = [reference(model, text) for text in texts]
    compare(Library.load(path, weights), texts, expected, allowed=BOUND * float(np.abs(expected[0]).max()))


@pytest.mark.parametrize("name", list(CASES | WINDOWED))
def test_lists_of_smoothed_inputs_fit_the_parameters(name: str) -> None:
    listed = parameters_of((CASES | WINDOWED)[name].config)
    shapes = {one.name: one for one in listed.parameters}
    readers = [matrix for one in listed.smoothed for matrix in one.matrices]
    assert len(set(readers)) == len(readers)
    for one in listed.smoothed:
        for matrix in one.matrices:
            assert shapes[matrix].role in _MATRICES
            assert shapes[matrix].shape[-1] == one.columns
        for absorber in one.absorbed_by:
            found = shapes[absorber.parameter]
            axis = -1 if found.role is ParameterRole.VECTOR else -2
            assert absorber.begin + one.channels <= found.shape[axis]


def test_an_input_has_scales_where_its_wiring_allows_it() -> None:
    def inputs(case: FamilyCase) -> Mapping[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for one in parameters_of(case.config).smoothed:
            layer = [absorber.parameter for absorber in one.absorbed_by if ".0." in absorber.parameter]
            for name in layer:
                found.setdefault(name.partition(".0.")[2], []).extend(
                    matrix.partition(".0.")[2] for matrix in one.matrices
                )
        return found

    assert inputs(CASES["qwen3"]) == {
        "input_layernorm.weight": ["self_attn.c_attn.weight"],
        "self_attn.c_attn.weight": ["self_attn.o_proj.weight"],
        "post_attention_layernorm.weight": ["mlp.gate_up_proj.weight"],
        "mlp.gate_up_proj.weight": ["mlp.down_proj.weight"],
    }
    one_norm = inputs(CASES["cohere"])["input_layernorm.weight"]
    assert one_norm == ["self_attn.qkv_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight"]
    assert "input_layernorm.weight" not in inputs(CASES["olmo2"])  # the norm is behind, and a sum reads it
    assert "self_attn.qkv_proj.weight" not in inputs(CASES["olmo-clipped"])  # values are cut
    mixture = inputs(CASES["granitemoe"])["post_attention_layernorm.weight"]
    assert mixture == ["mlp.gate.weight", "mlp.moe_gate_up_proj.weight"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in WRITTEN_BACK_IN_CI else pytest.mark.exhaustive)
        for name, case in (CASES | WINDOWED).items()
        if case.checkpoint is dict and not model_of(case.config).limits.is_encoder
    ],
)
def test_transformers_sees_no_difference_in_a_scaled_checkpoint(name: str) -> None:
    import torch

    case = (CASES | WINDOWED)[name]
    model, listed = random_model(case.model), parameters_of(case.config)
    text = sequences(case.model["vocab_size"])[0]
    expected = reference(model, text)
    tensors = {key: array.copy() for key, array in tensors_of(model).items()}
    _write_back(tensors, _random_scaling(listed), listed)
    model.load_state_dict({key: torch.from_numpy(array) for key, array in tensors.items()}, strict=False)
    np.testing.assert_allclose(reference(model, text), expected, rtol=0, atol=BOUND * float(np.abs(expected).max()))


def _write_back(tensors: dict[str, Array], scaling: Scaling, listed: ParameterList) -> None:
    """Scale the parameters of a checkpoint in place. What operations move is found by moving numbers of places."""
    for parameter in listed.parameters:
        if scaling.becomes(parameter) is None:
            continue
        moves = tuple(one for one in parameter.operations if not isinstance(one, AddOne))
        added = sum(one.times for one in parameter.operations if isinstance(one, AddOne))
        parts = [schemes.tensor_of(tensors, source) for source in parameter.sources]
        ends = np.cumsum([part.size for part in parts])
        places = [np.arange(end - part.size, end).reshape(part.shape) for end, part in zip(ends, parts, strict=True)]
        found = np.empty(int(ends[-1]), np.float32)
        whole = carry_out(moves, parts) + np.float32(added)
        found[carry_out(moves, places)] = _scaled(scaling, parameter, whole) - np.float32(added)
        for source, array in zip(parameter.sources, np.split(found, ends[:-1]), strict=True):
            schemes.replace_tensor(tensors, source, array.reshape(source.shape))
