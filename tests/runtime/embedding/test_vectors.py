"""What becomes of hidden states, and which texts are computed together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.errors import UsageError
from mlcbuild.runtime.embedding.batching import batches
from mlcbuild.runtime.embedding.pooling import STRATEGIES, Pooling

HIDDEN = np.array([[3, 0, 0], [0, 4, 0], [1, 1, 1]], np.float32)


@pytest.mark.parametrize(
    ("strategy", "expected"), [("cls", [3, 0, 0]), ("mean", [4 / 3, 5 / 3, 1 / 3]), ("last", [1, 1, 1])]
)
def test_a_vector_is_that_of_the_strategy_and_of_length_one_where_asked(strategy: str, expected: list[float]) -> None:
    plain = Pooling(strategy=strategy, normalize=False).vector(HIDDEN)
    assert plain.dtype == np.float32
    np.testing.assert_allclose(plain, expected, rtol=1e-6)
    unit = Pooling(strategy=strategy, normalize=True).vector(HIDDEN.astype(np.float16))
    np.testing.assert_allclose(unit, np.array(expected) / np.linalg.norm(expected), rtol=1e-6)


def test_a_vector_of_zeros_stays_as_it_is() -> None:
    assert not Pooling(strategy="mean", normalize=True).vector(np.zeros((2, 4), np.float32)).any()


def test_a_library_that_makes_no_embeddings_is_refused_and_so_is_another_strategy() -> None:
    with pytest.raises(UsageError, match="generates text"):
        Pooling.of({"model_task": "chat"})
    with pytest.raises(UsageError, match='pools by "max"; known: cls, mean, last'):
        Pooling.of({"model_task": "embedding", "embedding_metadata": {"pooling_strategy": "max"}})
    for strategy in STRATEGIES:
        told = {"model_task": "embedding", "embedding_metadata": {"pooling_strategy": strategy, "normalize": False}}
        assert Pooling.of(told) == Pooling(strategy=strategy, normalize=False)


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 8), st.integers(1, 200))
def test_every_text_is_in_one_batch_and_batches_keep_their_bounds(
    lengths: list[int], most_texts: int, most_tokens: int
) -> None:
    found = list(batches(lengths, most_texts=most_texts, most_tokens=most_tokens))
    assert sorted(number for batch in found for number in batch) == list(range(len(lengths)))
    for batch in found:
        assert len(batch) <= most_texts
        assert len(batch) == 1 or len(batch) * max(lengths[number] for number in batch) <= most_tokens
        assert lengths[batch[0]] == max(lengths[number] for number in batch)
