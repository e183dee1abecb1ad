"""Compiled Mistrals against transformers, with texts that are longer than the sliding window.

transformers knows no sink: there, the reference is its model with the attention of `sink_reference`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi

from mlcbuild.compiler.models.architecture.window import SlidingWindow
from mlcbuild.runtime.batch.sequences import SequenceBatch
from mlcbuild.runtime.kv_cache import PAGE_TOKENS, sequence_pages
from mlcbuild.runtime.model import Model
from tests.compiler import schemes
from tests.compiler.parity import bound, reference
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.running import Array, Library, random_model, store
from tests.compiler.sink_reference import attention_with
from tests.compiler.unequal_passes import check_unequal_passes

pytestmark = pytest.mark.slow
_WINDOW = 32
_CONFIG: dict[str, Any] = {
    "model_type": "mistral",
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 320,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
    "sliding_window": _WINDOW,
}
_TEXT = 120


@dataclass(frozen=True, kw_only=True)
class _Compiled:
    """A library, its weights, texts of `_TEXT` tokens, and their logits as they should be."""

    path: Path
    weights: dict[str, Array]
    texts: list[list[int]]
    logits: list[Array]
    allowed: float
    sink: int

    def library(self, *, keeps: int) -> Library:
        """With a cache that keeps so many tokens of a sequence; 0 for all."""
        return Library.load(self.path, self.weights, window=keeps, sink=self.sink)

    def check(self, found: Array, text: int, place: int) -> None:
        np.testing.assert_allclose(found, self.logits[text][place], rtol=0, atol=self.allowed, err_msg=f"at {place}")


def _compiled(directory: Path, kernel_store: Path, quantization: str, window: SlidingWindow) -> _Compiled:
    scheme = schemes.scheme(quantization)
    model = random_model(_CONFIG)
    weights = store(model, scheme)
    overrides = {"attention_sink_size": window.sink, "prefill_chunk_size": 2 * _TEXT}
    path = compile_library(_CONFIG, quantization, CPU_TARGET, directory, kernel_store=kernel_store, overrides=overrides)
    random = np.random.default_rng(1)
    texts = [[int(token) for token in random.integers(0, _CONFIG["vocab_size"], _TEXT)] for _ in range(3)]
    with attention_with(window):
        logits = [reference(model, text) for text in texts]
    largest = max(float(np.abs(each).max()) for each in logits)
    return _Compiled(
        path=path,
        weights=weights,
        texts=texts,
        logits=logits,
        allowed=bound(_CONFIG, scheme, largest),
        sink=window.sink,
    )


@pytest.fixture(scope="module", params=[("q0f32", 0), ("q0f32", 4), ("q0f16", 0), ("q4f16_1", 5)], ids=str)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kernel_store: Path) -> _Compiled:
    quantization, sink = request.param
    directory = tmp_path_factory.mktemp("window")
    return _compiled(directory, kernel_store, quantization, SlidingWindow(size=_WINDOW, sink=sink))


@pytest.fixture(params=[0, _WINDOW], ids=["keeps-all", "drops"])
def library(request: pytest.FixtureRequest, compiled: _Compiled) -> Library:
    return compiled.library(keeps=request.param)


def _add(library: Library, sequence: int, tokens: Sequence[int]) -> Array:
    return library.decode(sequence, tokens[0]) if len(tokens) == 1 else library.prefill(sequence, tokens)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 40, 56, 120])
def test_a_whole_prompt_of_any_length(compiled: _Compiled, library: Library, length: int) -> None:
    library.add(0)
    compiled.check(_add(library, 0, compiled.texts[0][:length]), 0, length - 1)


@pytest.mark.parametrize(
    "pieces", [[1] * 120, [8] * 15, [31, 1, 32, 33, 2, 21], [32, 32, 32], [40, 3, 50, 1, 1], [70, 50]]
)
def test_a_text_in_pieces(compiled: _Compiled, library: Library, pieces: list[int]) -> None:
    library.add(0)
    begin = 0
    for count in pieces:
        compiled.check(_add(library, 0, compiled.texts[0][begin : begin + count]), 0, begin + count - 1)
        begin += count


def test_decoding_goes_on_beyond_the_window(compiled: _Compiled, library: Library) -> None:
    library.add(0)
    compiled.check(library.prefill(0, compiled.texts[0][:20]), 0, 19)
    for place in range(20, 80):
        compiled.check(library.decode(0, compiled.texts[0][place]), 0, place)


def test_sequences_of_different_lengths_in_one_pass(compiled: _Compiled, library: Library) -> None:
    prefills = ([50, 7, 33], [1, 40, 3], [9, 33, 1])
    check_unequal_passes(library, compiled.texts, compiled.check, prefills=prefills, decoded=8, verified=[2, 5, 36])


def _fork(library: Library, parent: int, child: int, *, at: int) -> None:
    tvm_ffi.get_global_func("vm.builtin.kv_state_fork_sequence")(library.cache, parent, child, at)


def test_sequences_that_keep_all_share_a_prefix(compiled: _Compiled) -> None:
    library = compiled.library(keeps=0)
    library.add(0)
    library.prefill(0, compiled.texts[0][:70])
    _fork(library, 0, 1, at=50)
    for sequence, begin in ((0, 70), (1, 50)):
        compiled.check(library.prefill(sequence, compiled.texts[0][begin : begin + 40]), 0, begin + 39)
    embedded = library.embed([compiled.texts[0][110], compiled.texts[0][90]])[:, None]
    logits = library.run("batch_decode", [0, 1], [1, 1], embedded)[:, 0]
    compiled.check(logits[0], 0, 110)
    compiled.check(logits[1], 0, 90)


def test_sequences_that_drop_tokens_share_a_prefix_of_the_sink(compiled: _Compiled) -> None:
    library = compiled.library(keeps=_WINDOW)
    library.add(0)
    compiled.check(library.prefill(0, compiled.texts[0][:30]), 0, 29)
    if compiled.sink == 0:
        with pytest.raises(Exception, match="only can be forked within sink size = 0"):
            _fork(library, 0, 1, at=4)
        return
    _fork(library, 0, 1, at=compiled.sink)
    library.keep(1)
    for sequence, begin in ((0, 30), (1, compiled.sink)):
        compiled.check(library.prefill(sequence, compiled.texts[0][begin : begin + 60]), 0, begin + 59)
        compiled.check(library.decode(sequence, compiled.texts[0][begin + 60]), 0, begin + 60)


def test_what_runs_packages_keeps_no_more_than_the_window_needs(compiled: _Compiled) -> None:
    model = Model(compiled.path, lambda wanted: (compiled.weights[tensor.name] for tensor in wanted))
    for first in (1, 30, 90):
        model.reset(capacity=_TEXT)
        compiled.check(model.prefill(compiled.texts[1][:first]), 1, first - 1)
        for place in range(first, _TEXT):
            compiled.check(model.decode(compiled.texts[1][place]), 1, place)


def test_a_text_that_goes_on_is_kept_behind_a_window_and_another_one_starts_over(compiled: _Compiled) -> None:
    model = Model(compiled.path, lambda wanted: (compiled.weights[tensor.name] for tensor in wanted))
    one, other = compiled.texts[:2]
    model.reset(capacity=_TEXT)
    compiled.check(model.prefill(one[:30]), 0, 29)
    assert model.keep(one[:60]) == 30
    compiled.check(model.prefill(one[30:60]), 0, 59)
    assert model.keep([*one[:20], -1, *other]) == 0
    compiled.check(model.prefill(other[:50]), 1, 49)


def test_sequences_of_a_batch_slide_beside_each_other(compiled: _Compiled) -> None:
    model = Model(compiled.path, lambda wanted: (compiled.weights[tensor.name] for tensor in wanted))
    pages = sequence_pages(model.cache_sizes, _TEXT)
    batch = SequenceBatch(model, sequences=2, tokens=2 * pages * PAGE_TOKENS)
    for sequence in (0, 1):
        batch.add(sequence)
    first = batch.prefill({0: compiled.texts[0][:5], 1: compiled.texts[1][:40]})
    for sequence, row, place in ((0, first[0], 4), (1, first[1], 39)):
        compiled.check(row, sequence, place)
    for step in range(_TEXT - 40):
        rows = batch.decode({0: compiled.texts[0][5 + step], 1: compiled.texts[1][40 + step]})
        compiled.check(rows[0], 0, 5 + step)
        compiled.check(rows[1], 1, 40 + step)


def test_a_window_of_one_token_is_a_window(tmp_path: Path, kernel_store: Path) -> None:
    config = _CONFIG | {"sliding_window": 1}
    model = random_model(config)
    scheme = schemes.scheme("q0f32")
    weights = store(model, scheme)
    overrides = {"prefill_chunk_size": 16}
    path = compile_library(config, "q0f32", CPU_TARGET, tmp_path, kernel_store=kernel_store, overrides=overrides)
    text = [int(token) for token in np.random.default_rng(1).integers(0, 320, 20)]
    expected = reference(model, text)
    found = Model(path, lambda wanted: (weights[tensor.name] for tensor in wanted))
    found.reset(capacity=20)
    rows = [found.prefill(text[:17]), *(found.decode(token) for token in text[17:])]
    allowed = bound(config, scheme, float(np.abs(expected).max()))
    np.testing.assert_allclose(np.stack(rows), expected[16:], rtol=0, atol=allowed)
