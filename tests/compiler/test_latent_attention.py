"""Latent attention over a cache that sequences share: any pieces, prefixes and lengths give what transformers does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi

from tests.compiler import schemes
from tests.compiler.families import BOUND
from tests.compiler.family_cases import CASES
from tests.compiler.parity import reference
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.running import Array, Library, random_model, store, tensors_of
from tests.compiler.unequal_passes import check_unequal_passes

_TEXT = 70
pytestmark = pytest.mark.slow


@dataclass(frozen=True, kw_only=True)
class _Compiled:
    """A library, its weights, and texts of `_TEXT` tokens with the logits that transformers gives for them."""

    path: Path
    weights: dict[str, Array]
    texts: list[list[int]]
    logits: list[Array]

    def library(self) -> Library:
        return Library.load(self.path, self.weights)

    def check(self, found: Array, text: int, place: int) -> None:
        allowed = BOUND * float(np.abs(self.logits[text]).max())
        np.testing.assert_allclose(found, self.logits[text][place], rtol=0, atol=allowed, err_msg=f"at {place}")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory, kernel_store: Path) -> _Compiled:
    case = CASES["deepseek_v3"]
    model = random_model(case.config)
    weights = schemes.stored(case.config, schemes.scheme("q0f32"), tensors_of(model))
    path = compile_library(
        case.config, "q0f32", CPU_TARGET, tmp_path_factory.mktemp("latent"), kernel_store=kernel_store
    )
    random = np.random.default_rng(1)
    texts = [[int(token) for token in random.integers(0, case.config["vocab_size"], _TEXT)] for _ in range(3)]
    return _Compiled(path=path, weights=weights, texts=texts, logits=[reference(model, text) for text in texts])


@pytest.mark.parametrize("pieces", [[1, 1, 14, 1, 17, 2, 9], [16, 16, 16, 1], [33, 37]])
def test_texts_in_pieces_of_any_length_by_prefill_alone(compiled: _Compiled, pieces: list[int]) -> None:
    library = compiled.library()
    library.add(0)
    begin = 0
    for count in pieces:
        compiled.check(library.prefill(0, compiled.texts[0][begin : begin + count]), 0, begin + count - 1)
        begin += count


def test_sequences_of_different_lengths_in_one_pass(compiled: _Compiled) -> None:
    prefills = ([25, 4, 17], [1, 20, 3], [5, 17, 1], [1, 1, 1])
    check_unequal_passes(
        compiled.library(), compiled.texts, compiled.check, prefills=prefills, decoded=3, verified=[2, 5, 11]
    )


@pytest.mark.parametrize("at", [16, 30, 40])
def test_sequences_share_a_prefix(compiled: _Compiled, at: int) -> None:
    library = compiled.library()
    library.add(0)
    library.prefill(0, compiled.texts[0][:40])
    tvm_ffi.get_global_func("vm.builtin.kv_state_fork_sequence")(library.cache, 0, 1, at)
    for sequence, begin in ((0, 40), (1, at)):
        compiled.check(library.prefill(sequence, compiled.texts[0][begin : begin + 8]), 0, begin + 7)
    # A prefix that begins with a prefix, and a new text beside them.
    tvm_ffi.get_global_func("vm.builtin.kv_state_fork_sequence")(library.cache, 1, 2, at + 8)
    library.add(3)
    lengths = [1, 2, 5, 3]
    begins = [48, at + 8, at + 8, 0]
    parts = [
        compiled.texts[int(sequence == 3)][begin : begin + length]
        for sequence, (begin, length) in enumerate(zip(begins, lengths, strict=True))
    ]
    last = np.cumsum(lengths).astype("int32") - 1
    embedded = library.embed([token for part in parts for token in part])[None]
    for sequence, logits in enumerate(library.run("batch_prefill", [0, 1, 2, 3], lengths, embedded, last)[0]):
        compiled.check(logits, int(sequence == 3), begins[sequence] + lengths[sequence] - 1)
    places = [begin + length for begin, length in zip(begins, lengths, strict=True)]
    tokens = [compiled.texts[int(sequence == 3)][place] for sequence, place in enumerate(places)]
    for sequence, logits in enumerate(
        library.run("batch_decode", [0, 1, 2, 3], [1] * 4, library.embed(tokens)[:, None])[:, 0]
    ):
        compiled.check(logits, int(sequence == 3), places[sequence])


def test_tokens_are_taken_back(compiled: _Compiled) -> None:
    library = compiled.library()
    library.add(0)
    library.prefill(0, compiled.texts[0][:20] + compiled.texts[1][20:40])
    tvm_ffi.get_global_func("vm.builtin.kv_state_popn")(library.cache, 0, 20)
    compiled.check(library.prefill(0, compiled.texts[0][20:33]), 0, 32)
    compiled.check(library.decode(0, compiled.texts[0][33]), 0, 33)


def test_the_cache_tells_what_it_keeps(compiled: _Compiled) -> None:
    library = compiled.library()
    library.add(0)
    library.prefill(0, compiled.texts[0][:20])
    config = CASES["deepseek_v3"].config
    width = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    kept = [
        tvm.runtime.tensor(np.full((config["num_hidden_layers"], count, width), np.nan, "float32")) for count in (20, 5)
    ]
    tell = tvm_ffi.get_global_func("vm.builtin.attention_kv_cache_debug_get_kv_mla")
    tell(library.cache, 0, 0, 20, kept[0])
    tell(library.cache, 0, 15, 20, kept[1])
    whole = kept[0].numpy()
    assert np.isfinite(whole).all()
    np.testing.assert_array_equal(kept[1].numpy(), whole[:, 15:])


def test_a_token_tree_is_refused(compiled: _Compiled) -> None:
    library = compiled.library()
    library.add(0)
    library.prefill(0, compiled.texts[0][:20])
    with pytest.raises(Exception, match="not supported yet for MLA"):
        _begin(library, [0], [3], [-1, 0, 0])


def _begin(library: Library, sequences: Sequence[int], lengths: Sequence[int], parents: Sequence[int]) -> Any:
    shapes = [tvm_ffi.Shape(list(numbers)) for numbers in (sequences, lengths, parents)]
    return tvm_ffi.get_global_func("vm.builtin.kv_state_begin_forward")(library.cache, *shapes)


@pytest.mark.exhaustive
def test_a_quantized_library_meets_the_cache_with_matrices_that_are_not(tmp_path: Path, kernel_store: Path) -> None:
    """A prompt in one pass reads the quantized `kv_b_proj`; a text that is given token by token never does."""
    config = {**CASES["deepseek_v3"].config, "q_lora_rank": 32}  # groups of 32 divide it
    scheme = schemes.scheme("q4f32_1")
    model = random_model(config)
    whole = {name: tensor.copy() for name, tensor in tensors_of(model).items() if "kv_b_proj" in name}
    weights = store(model, scheme)  # whose numbers the model has then
    text = [int(token) for token in np.random.default_rng(1).integers(0, config["vocab_size"], 20)]
    library = Library.load(compile_library(config, "q4f32_1", CPU_TARGET, tmp_path, kernel_store=kernel_store), weights)
    expected = reference(model, text)
    library.add(0)
    allowed = BOUND * float(np.abs(expected).max())
    np.testing.assert_allclose(library.prefill(0, text), expected[-1], rtol=0, atol=allowed)
    for name, numbers in whole.items():
        tensors_of(model)[name][...] = numbers
    expected = reference(model, text)
    library.add(1)
    for place, token in enumerate(text):
        np.testing.assert_allclose(library.decode(1, token), expected[place], rtol=0, atol=allowed, err_msg=str(place))
