"""What sequences keep of recurrent layers: tokens are taken back, sequences forked, and batches computed, as an engine
and the runtime do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi

from mlcbuild.errors import StageError, UsageError
from mlcbuild.runtime.batch.sequences import SequenceBatch
from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.model import Model
from tests.compiler import schemes
from tests.compiler.family_cases import CASES
from tests.compiler.parity import check_logits
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.running import Array, Library, random_model

pytestmark = pytest.mark.slow
NAMES = ["mamba2", pytest.param("qwen3_5", marks=pytest.mark.exhaustive)]
TOKENS = np.random.default_rng(5).integers(0, 320, 24).tolist()
Built = tuple[Path, dict[str, Array]]
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, kernel_store: Path
) -> Callable[[str], tuple[Path, dict[str, Array]]]:
    """Libraries of small models with their weights, each compiled once."""
    made: dict[str, Built] = {}

    def build(name: str) -> Built:
        if name not in made:
            config = CASES[name].config
            state = {key: each.detach().numpy() for key, each in random_model(config).named_parameters()}
            directory = tmp_path_factory.mktemp(name)
            path = compile_library(config, "q0f32", CPU_TARGET, directory, kernel_store=kernel_store)
            made[name] = path, schemes.stored(config, schemes.scheme("q0f32"), state)
        return made[name]

    return build


def _call(library: Library, function: str, *arguments: int) -> None:
    for state in library.states:
        tvm_ffi.get_global_func(f"vm.builtin.kv_state_{function}")(state, *arguments)


@pytest.mark.parametrize("name", NAMES)
def test_tokens_that_came_one_by_one_are_taken_back_within_the_history(built: Any, name: str) -> None:
    library = Library.load(*built(name), history=4)
    library.add(0)
    library.prefill(0, TOKENS[:9])
    with pytest.raises(Exception, match="available history"):
        _call(library, "popn", 0, 1)
    expected = [library.decode(0, token) for token in TOKENS[9:14]]
    _call(library, "popn", 0, 3)
    for place in range(3):
        np.testing.assert_allclose(library.decode(0, TOKENS[11 + place]), expected[2 + place], **CLOSE)


@pytest.mark.parametrize("name", NAMES)
def test_a_forked_sequence_goes_on_from_its_parents_state(built: Any, name: str) -> None:
    library = Library.load(*built(name))
    library.add(0)
    library.prefill(0, TOKENS[:9])
    _call(library, "fork_sequence", 0, 1, -1)
    parent = [library.decode(0, token) for token in TOKENS[9:12]]
    child = [library.decode(1, token) for token in TOKENS[9:12]]
    np.testing.assert_allclose(child, parent, **CLOSE)


@pytest.mark.parametrize("name", NAMES)
def test_a_sequence_that_is_removed_leaves_nothing_to_the_next(built: Any, name: str) -> None:
    library = Library.load(*built(name), batch=1)
    library.add(0)
    first = library.prefill(0, TOKENS)
    _call(library, "remove_sequence", 0)
    library.add(1)
    assert (library.prefill(1, TOKENS) == first).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_runtime_keeps_a_sequence_that_goes_on_and_starts_another_one_over(built: Any, name: str) -> None:
    model = _model(*built(name))
    model.reset(capacity=64)
    model.prefill(TOKENS[:9])
    assert model.keep(TOKENS[:12]) == 9
    going_on = model.prefill(TOKENS[9:12])
    assert model.keep([*TOKENS[:5], 1, 2]) == 0
    assert model.keep(TOKENS[:12]) == 0
    np.testing.assert_allclose(model.prefill(TOKENS[:12]), going_on, **CLOSE)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_unequal_lengths_has_the_logits_of_each_sequence_alone(built: Any, name: str) -> None:
    model = _model(*built(name))
    prompts = {0: TOKENS[:7], 1: TOKENS[3:4], 2: TOKENS[5:24]}
    alone = {}
    for sequence, prompt in prompts.items():
        model.reset(capacity=64)
        every = np.concatenate(list(model.prefill_in_pieces(prompt, every_token=True)))
        alone[sequence] = every, model.decode(9)
    batch = SequenceBatch(model, sequences=3, tokens=192)
    for sequence in prompts:
        batch.add(sequence)
    for row, (every, _) in zip(batch.prefill(prompts), alone.values(), strict=True):
        np.testing.assert_allclose(row, every[-1], **CLOSE)
    for row, (_, after) in zip(batch.decode(dict.fromkeys(prompts, 9)), alone.values(), strict=True):
        np.testing.assert_allclose(row, after, **CLOSE)
    for sequence in prompts:
        batch.remove(sequence)
        batch.add(sequence)
    for found, (every, _) in zip(batch.prefill_with_every_logit(prompts), alone.values(), strict=True):
        np.testing.assert_allclose(found, every, **CLOSE)


@pytest.mark.exhaustive
def test_texts_of_a_model_of_recurrent_layers_alone_have_no_bound(built: Any) -> None:
    model = _model(*built("mamba2"))
    assert model.context_window_size == -1
    model.reset(capacity=1 << 30)
    bounded = _model(*built("qwen3_5"))
    with pytest.raises(UsageError, match="513 tokens do not fit the model's context of 512"):
        bounded.reset(capacity=513)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "quantization"), [("mamba2", "q4f16_1"), ("qwen3_5", "q4f32_1")])
def test_quantized_models_are_off_by_their_roundings_alone(
    name: str, quantization: str, tmp_path: Path, kernel_store: Path
) -> None:
    check_logits(dict(CASES[name].config), quantization, tmp_path, kernel_store=kernel_store)


def test_functions_of_hidden_states_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="models with a recurrent state have no functions for hidden states"):
        compile_library(CASES["mamba2"].config, "q0f32", CPU_TARGET, tmp_path, hidden_states=True)


def _model(library: Path, weights: dict[str, Array]) -> Model:
    def read(expected: Sequence[ExpectedTensor]) -> list[Array]:
        return [np.ascontiguousarray(weights[each.name]) for each in expected]

    return Model(library, read)
