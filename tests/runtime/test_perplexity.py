"""Perplexity: which tokens windows score, what comes of logits that are known, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.errors import UsageError
from mlcbuild.runtime.kv_cache import CacheSizes
from mlcbuild.runtime.model import Model
from mlcbuild.runtime.perplexity import measure_perplexity, windows_of

VOCABULARY = 7
PADDED = 9  # logits of a library behind its vocabulary are padding


class TableModel:
    """Says the same after a token wherever it stands: row `token` of a table. `seen` are the sequences that it was
    fed."""

    def __init__(self, table: Any, *, context: int = 64, chunk: int = 5) -> None:
        self.table = table
        self.context_window_size = context
        self.prefill_chunk_size = chunk
        self.active_vocab_size = VOCABULARY
        self.cache_sizes = CacheSizes(prefill_chunk=chunk, sliding_window=-1, attention_sink=0, context_window=context)
        self.seen: list[list[int]] = []

    def reset(self, *, capacity: int) -> None:
        assert 0 < capacity <= self.context_window_size
        self.seen.append([])

    def prefill_in_pieces(self, tokens: Sequence[int], *, every_token: bool) -> Iterator[Any]:
        assert every_token
        self.seen[-1] += tokens
        for begin in range(0, len(tokens), self.prefill_chunk_size):
            yield self.table[np.asarray(tokens[begin : begin + self.prefill_chunk_size])]


def model_of(table: Any, **more: int) -> Model:
    return cast(Model, TableModel(table, **more))


def table(seed: int = 0) -> Any:
    numbers = np.random.default_rng(seed).normal(0, 3, (VOCABULARY, PADDED)).astype(np.float32)
    numbers[:, VOCABULARY:] = 1e9  # whatever is there, it counts for nothing
    return numbers


@given(tokens=st.integers(2, 400), window=st.integers(2, 60), share=st.floats(0.01, 1))
def test_windows_score_each_token_once_but_those_with_nothing_before(tokens: int, window: int, share: float) -> None:
    stride = max(1, int(window * share))
    found = list(windows_of(tokens, window=window, stride=stride))
    scored = [position for each in found for position in range(each.scored, each.end)]
    assert len(scored) == len(set(scored))
    assert all(each.begin < each.scored < each.end <= each.begin + window for each in found)
    left = set(range(tokens)) - set(scored)
    # Without an overlap each window begins with a token that is not scored; with one, only the text does.
    assert left == (set(range(0, tokens, stride)) if stride == window else {0})


@given(
    tokens=st.lists(st.integers(0, VOCABULARY - 1), min_size=2, max_size=300),
    window=st.integers(2, 64),
    share=st.floats(0.01, 1),
)
def test_a_measurement_is_the_mean_over_the_scored_tokens(tokens: list[int], window: int, share: float) -> None:
    stride = max(1, int(window * share))
    numbers = table()
    wanted = numbers[:, :VOCABULARY].astype(np.float64)
    logarithms = wanted - np.log(np.exp(wanted).sum(axis=1, keepdims=True))
    scored = [
        -logarithms[tokens[position - 1], tokens[position]]
        for each in windows_of(len(tokens), window=window, stride=stride)
        for position in range(each.scored, each.end)
    ]
    found = measure_perplexity(model_of(numbers), tokens, window=window, stride=stride)
    assert found.negative_log_likelihood == pytest.approx(np.mean(scored), rel=1e-9)
    assert found.perplexity == pytest.approx(math.exp(np.mean(scored)), rel=1e-9)
    assert (found.tokens, found.scored) == (len(tokens), len(scored))


def test_the_last_token_of_a_window_is_not_fed() -> None:
    model = TableModel(table())
    measure_perplexity(cast(Model, model), [0, 1, 2, 3, 4], window=3, stride=2)
    assert model.seen == [[0, 1], [2, 3]]


def test_a_model_that_knows_nothing_has_the_vocabulary_as_its_perplexity() -> None:
    even = np.zeros((VOCABULARY, PADDED), np.float32)
    assert measure_perplexity(model_of(even), [1, 2, 3], window=8, stride=8).perplexity == pytest.approx(VOCABULARY)


def test_a_text_that_is_never_expected_has_an_infinite_perplexity() -> None:
    sure = np.full((VOCABULARY, PADDED), -2e4, np.float32)
    sure[:, 0] = 2e4
    assert measure_perplexity(model_of(sure), [1, 2], window=8, stride=8).perplexity == math.inf


@pytest.mark.parametrize(
    ("tokens", "window", "stride", "said"),
    [
        ([], 8, 8, "the text has 0 tokens"),
        ([1], 8, 8, "the text has 1 token:"),
        ([1, 2, 3], 1, 1, "a window has two or more"),
        ([1, 2, 3], 4, 5, "a stride at most it"),
        ([1, 2, 3], 4, 0, "a stride at most it"),
        ([1, 2, 3], 65, 65, "windows of 65 tokens do not fit the model's context of 64"),
    ],
)
def test_what_cannot_be_measured_is_refused(tokens: list[int], window: int, stride: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        measure_perplexity(model_of(table()), tokens, window=window, stride=stride)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_logits_that_are_no_numbers_are_told_with_their_window(number: float) -> None:
    broken = table()
    broken[3, 2] = number
    measure_perplexity(model_of(broken), [0, 1, 2, 1, 2, 0], window=3, stride=3)
    with pytest.raises(UsageError, match="not finite numbers, in the window of tokens 3 to 5"):
        measure_perplexity(model_of(broken), [0, 1, 2, 3, 2, 0], window=3, stride=3)


def test_progress_is_told_a_window_at_a_time() -> None:
    told: list[tuple[int, int]] = []
    measure_perplexity(model_of(table()), [0, 1] * 5, window=4, stride=4, done=lambda *each: told.append(each))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_sliding_window_has_room_for_any_text() -> None:
    sliding = TableModel(table(), context=100)
    sliding.cache_sizes = CacheSizes(prefill_chunk=5, sliding_window=8, attention_sink=0, context_window=64)
    found = measure_perplexity(cast(Model, sliding), [0, 1, 2] * 40, window=100, stride=100)
    assert found.windows == 2
