"""What is observed of a model is what transformers' modules are given, and does not depend on who observes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcbuild.compiler.calibration.samples import Tokens
from mlcbuild.compiler.calibration.statistics import Statistics
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters
from mlcbuild.compiler.models.parameter_role import ParameterRole
from tests.compiler.family_case import FamilyCase
from tests.compiler.family_cases import CASES
from tests.compiler.observing import observed_model, statistics_of
from tests.compiler.running import random_model, tensors_of
from tests.compiler.tiny_models import TINY, Array
from tests.compiler.windowed_cases import WINDOWED

_LLAMA = {**TINY, "max_position_embeddings": 512}
_MIXTRAL = {**_LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
_BOUND = 4e-6  # of the largest, in float32: sums of hundreds of products, behind a few layers
_RECURRENT_BOUND = 4e-5  # states are sums over a text, which transformers makes piece by piece
_RANDOM = np.random.default_rng(1)
_SAMPLES: tuple[Tokens, ...] = tuple(tuple(map(int, _RANDOM.integers(3, 299, n))) for n in (40, 150, 7))


def inputs_of(model: Any, samples: tuple[Tokens, ...]) -> dict[str, Array]:
    """What each module of a model of transformers is given first, as rows, over all samples in their order; of experts
    also what their second matrices are multiplied by, by the name of their module and `.down`."""
    import torch

    seen: dict[str, list[Array]] = {}

    def rows(x: Any) -> Array:
        found: Array = x.detach().reshape(-1, x.shape[-1]).float().numpy().copy()
        return found

    def note(name: str) -> Any:
        def hook(module: Any, given: tuple[Any, ...]) -> None:
            if not given or not isinstance(given[0], torch.Tensor):
                return
            seen.setdefault(name, []).append(rows(given[0]))
            if name.endswith(".experts") and len(given) > 1 and not hasattr(module, "gate_up_proj_bias"):
                hidden, index = given[0], given[1]
                gate, up = torch.einsum("tch,tcoh->tco", hidden[:, None], module.gate_up_proj[index]).chunk(2, dim=-1)
                seen.setdefault(f"{name}.down", []).append(rows(module.act_fn(gate) * up))

        return hook

    hooks = [module.register_forward_pre_hook(note(name)) for name, module in model.named_modules()]
    with torch.no_grad():
        for sample in samples:
            model(torch.tensor([sample]))
    for hook in hooks:
        hook.remove()
    one_width = {name: found for name, found in seen.items() if len({each.shape[1] for each in found}) == 1}
    return {name: np.concatenate(found) for name, found in one_width.items()}


def check_equal(statistics: Statistics, matrix: str, rows: Array, *, allowed: float = _BOUND) -> None:
    found = statistics.of(matrix)
    assert found is not None
    assert found.rows == len(rows)
    wide = rows.astype(np.float64)
    for actual, expected in (
        (found.gram, wide.T @ wide),
        (found.absolute_sum, np.abs(wide).sum(axis=0)),
        (found.maximum, np.abs(wide).max(axis=0)),
    ):
        assert np.abs(actual - expected).max() <= allowed * np.abs(expected).max(), matrix


def compared(
    directory: Path, statistics: Statistics, inputs: Mapping[str, Array], *, allowed: float = _BOUND
) -> Iterator[str]:
    """Compare the inputs of matrices that are one module's of transformers, or several modules', and yield their
    names."""
    sources = {each.name: each.sources for each in read_parameters(directory / "parameters.json").parameters}
    for observed in statistics.index.inputs:
        for matrix in observed.matrices:
            own = [tensor.name.removesuffix(".weight") for tensor in sources[matrix]]
            modules = [*own, *(f"transformer.{module}" for module in own)]  # as GPT-2 has them
            for module in modules:
                if module in inputs and inputs[module].shape == (observed.rows, observed.width):
                    check_equal(statistics, matrix, inputs[module], allowed=allowed)
                    yield matrix


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory, kernel_store: Path) -> tuple[Path, Any]:
    directory, model = tmp_path_factory.mktemp("llama"), random_model(_LLAMA)
    return observed_model(_LLAMA, tensors_of(model), directory, kernel_store=kernel_store), model


@pytest.mark.slow
def test_every_matrix_of_a_llama_is_observed_as_transformers_has_it(llama: tuple[Path, Any], tmp_path: Path) -> None:
    directory, model = llama
    statistics = statistics_of(directory, [_SAMPLES[:2], _SAMPLES[2:]], to=tmp_path / "own")
    matrices = set(compared(directory, statistics, inputs_of(model, _SAMPLES)))
    parameters = read_parameters(directory / "parameters.json").parameters
    assert matrices == {each.name for each in parameters if len(each.shape) == 2} - {"model.embed_tokens.weight"}
    assert statistics.index.tokens == sum(map(len, _SAMPLES))
    # Of one shard or several, the same sums but for the order of additions.
    whole = statistics_of(directory, [_SAMPLES], to=tmp_path / "whole")
    for matrix in matrices:
        one, other = whole.of(matrix), statistics.of(matrix)
        assert one is not None
        assert other is not None
        np.testing.assert_allclose(one.gram, other.gram, rtol=0, atol=1e-6 * np.abs(one.gram).max())
        np.testing.assert_array_equal(one.maximum, other.maximum)


@pytest.mark.slow
def test_the_bytes_depend_on_no_number_of_threads(llama: tuple[Path, Any], tmp_path: Path) -> None:
    directory, _ = llama
    found = []
    for threads in (1, 2):
        to = tmp_path / str(threads)
        statistics_of(directory, [_SAMPLES], to=to, threads=threads)
        found.append({path.name: path.read_bytes() for path in (to / "statistics").iterdir()})
    assert found[0] == found[1]


@pytest.mark.slow
def test_experts_are_observed_by_the_rows_that_are_routed_to_them(tmp_path: Path, kernel_store: Path) -> None:
    model = random_model(_MIXTRAL)
    directory = observed_model(_MIXTRAL, tensors_of(model), tmp_path / "model", kernel_store=kernel_store)
    statistics = statistics_of(directory, [_SAMPLES], to=tmp_path / "own")
    inputs = inputs_of(model, _SAMPLES)
    others = {"model.layers.1.self_attn.qkv_proj.weight", "lm_head.weight"}
    assert set(compared(directory, statistics, inputs)) >= others
    for layer in range(2):
        experts = f"model.layers.{layer}.mlp.experts"
        for matrix, rows in (("e1_e3", inputs[experts]), ("e2", inputs[f"{experts}.down"]), ("gate", inputs[experts])):
            check_equal(statistics, f"model.layers.{layer}.moe.{matrix}.weight", rows)
    # What experts and their router are multiplied by is one input.
    shared = [each.matrices for each in statistics.index.inputs if "model.layers.0.moe.gate.weight" in each.matrices]
    assert shared == [("model.layers.0.moe.gate.weight", "model.layers.0.moe.e1_e3.weight")]


_FAMILIES = ("gemma2", "gpt2", "baichuan-alibi", "cohere")
_RECURRENT = ("granitemoehybrid-dense", "granitemoehybrid", "mamba2", "qwen3_next")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", _FAMILIES)
def test_decoders_of_other_kinds_are_observed(name: str, tmp_path: Path, kernel_store: Path) -> None:
    case: FamilyCase = (CASES | WINDOWED)[name]
    model = random_model(case.model)
    tensors = case.checkpoint(tensors_of(model))
    directory = observed_model(case.config, tensors, tmp_path / "model", kernel_store=kernel_store)
    statistics = statistics_of(directory, [_SAMPLES], to=tmp_path / "own")
    assert len(set(compared(directory, statistics, inputs_of(model, _SAMPLES)))) >= 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [_RECURRENT[0], *(pytest.param(name, marks=pytest.mark.exhaustive) for name in _RECURRENT[1:])]
)
def test_recurrent_layers_are_observed_with_their_states(name: str, tmp_path: Path, kernel_store: Path) -> None:
    case: FamilyCase = (CASES | WINDOWED)[name]
    model = random_model(case.model)
    directory = observed_model(
        case.config, case.checkpoint(tensors_of(model)), tmp_path / "model", kernel_store=kernel_store
    )
    statistics = statistics_of(directory, [_SAMPLES[:2], _SAMPLES[2:]], to=tmp_path / "own")
    found = set(compared(directory, statistics, inputs_of(model, _SAMPLES), allowed=_RECURRENT_BOUND))
    recurrent = [one for one in found if any(part in one for part in (".mamba.", ".mixer.", ".linear_attn."))]
    assert len(recurrent) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", pytest.param("roberta", marks=pytest.mark.exhaustive)])
def test_encoders_are_observed(name: str, tmp_path: Path, kernel_store: Path) -> None:
    case: FamilyCase = CASES[name]
    model = random_model(case.model)
    directory = observed_model(
        case.config, case.checkpoint(tensors_of(model)), tmp_path / "model", kernel_store=kernel_store
    )
    samples = tuple(sample[:40] for sample in _SAMPLES)
    statistics = statistics_of(directory, [samples], to=tmp_path / "own")
    found = set(compared(directory, statistics, inputs_of(model, samples)))
    listed = read_parameters(directory / "parameters.json").parameters
    assert found == {one.name for one in listed if one.role is ParameterRole.LINEAR}
