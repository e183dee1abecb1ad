"""A pass may be prepared before its token is known; what is not to come is taken back. Here the device is the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlcbuild.runtime.batch.sequences import SequenceBatch
from mlcbuild.runtime.engine import Engine
from mlcbuild.runtime.logits import Array
from mlcbuild.runtime.token_chooser import ChosenTokens

pytestmark = pytest.mark.slow

_PROMPT = [5, 9, 17, 200, 31]


@pytest.fixture
def engine(tiny_package: Path) -> Engine:
    return Engine(tiny_package, threads=1)


def _chosen(engine: Engine, *tokens: int) -> ChosenTokens:
    return ChosenTokens(on_device=engine.machine.tensor(np.array(tokens, np.int32)))


def _begun(engine: Engine, capacity: int = 32) -> Engine:
    engine.reset(capacity=capacity)
    engine.prefill(_PROMPT)
    return engine


def _plain(engine: Engine, *tokens: int) -> Array:
    _begun(engine)
    return [engine.decode(token) for token in tokens][-1]


def test_a_prepared_token_has_the_logits_that_it_has_without(engine: Engine) -> None:
    expected = _plain(engine, 7, 8, 9)
    _begun(engine)
    for token in (7, 8):
        engine.look_ahead(_chosen(engine, token))
        engine.decode(token)
    engine.look_ahead(_chosen(engine, 9))
    np.testing.assert_array_equal(engine.decode(9), expected)
    assert engine.length == len(_PROMPT) + 3


def test_another_token_may_come(engine: Engine) -> None:
    expected = _plain(engine, 7, 8)
    _begun(engine)
    engine.look_ahead(_chosen(engine, 3))
    engine.decode(7)
    engine.look_ahead(_chosen(engine, 8))
    np.testing.assert_array_equal(engine.decode(8), expected)


def test_several_tokens_may_come(engine: Engine) -> None:
    expected = _begun(engine).prefill([7, 8, 9])
    _begun(engine).look_ahead(_chosen(engine, 7))
    np.testing.assert_array_equal(engine.prefill([7, 8, 9]), expected)


def test_an_answer_that_ended_is_gone_on_with(engine: Engine) -> None:
    expected = _plain(engine, 7)
    _begun(engine).look_ahead(_chosen(engine, 40))
    assert engine.keep([*_PROMPT, 7]) == len(_PROMPT)
    np.testing.assert_array_equal(engine.decode(7), expected)


def test_nothing_is_prepared_where_there_is_no_room_for_it(engine: Engine) -> None:
    _begun(engine, capacity=len(_PROMPT) + 1)
    engine.decode(7)
    engine.look_ahead(_chosen(engine, 8))
    with pytest.raises(ValueError, match="more than 6 tokens"):
        engine.decode(8)


def _batch(engine: Engine) -> SequenceBatch:
    batch = SequenceBatch(engine, sequences=3, tokens=64)
    for sequence in range(3):
        batch.add(sequence)
    batch.prefill({sequence: _PROMPT[: 2 + sequence] for sequence in range(3)})
    return batch


def test_sequences_of_a_batch_are_prepared_together_and_may_end(engine: Engine) -> None:
    plain = _batch(engine)
    first = plain.decode({0: 7, 1: 8, 2: 9})
    plain.remove(1)
    second = plain.decode({0: 10, 2: 11})
    batch = _batch(engine)
    batch.look_ahead([0, 1, 2], _chosen(engine, 7, 8, 9))
    np.testing.assert_array_equal(batch.decode({0: 7, 1: 8, 2: 9}), first)
    batch.look_ahead([0, 1, 2], _chosen(engine, 10, 1, 11))
    batch.remove(1)
    np.testing.assert_array_equal(batch.decode({0: 10, 2: 11}), second)


def test_a_sequence_that_comes_meanwhile_is_read_first(engine: Engine) -> None:
    plain = _batch(engine)
    plain.remove(2)
    plain.add(2)
    read = plain.prefill({2: _PROMPT})
    expected = plain.decode({0: 7, 1: 8, 2: 9})
    batch = _batch(engine)
    batch.remove(2)
    batch.look_ahead([0, 1], _chosen(engine, 7, 8))
    batch.add(2)
    np.testing.assert_array_equal(batch.prefill({2: _PROMPT}), read)
    np.testing.assert_array_equal(batch.decode({0: 7, 1: 8, 2: 9}), expected)
