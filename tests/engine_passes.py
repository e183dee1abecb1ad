"""Forward passes as engines call them: each way to go through tokens has the same results but for rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.engine_functions import Engine
from tests.engine_weights import Array

_PAGE_TOKENS = 16
_HISTORY = 1  # states of a sequence that an engine keeps, where it takes no tokens back


def check_forward(engine: Engine, random: np.random.Generator, batch: int) -> None:
    """Prompts of `batch` sequences and a token of each after it, at once, in pieces, and one sequence at a time."""
    forward = _Forward(engine, batch)
    prompts, following = _texts(engine, random, batch)
    every = forward.verify(prompts)
    expected = np.stack([logits[-1] for logits in every])
    assert np.ptp(expected) > 0.1, "weights whose logits say nothing"
    forward.empty()
    forward.agree(forward.prefill(prompts), expected)
    together = forward.decode(following)
    forward.empty()
    forward.agree(forward.prefill([prompt[:2] for prompt in prompts]), np.stack([logits[1] for logits in every]))
    forward.agree(forward.prefill([prompt[2:] for prompt in prompts]), expected)
    forward.agree(forward.decode(following), together)
    forward.empty()
    for place, prompt in enumerate(prompts):
        one = forward.run("prefill", [prompt], first=place)[0, 0]
        forward.agree(one, expected[place], first=place)
        one = forward.run("decode", [following[place : place + 1]], first=place)[0, 0]
        forward.agree(one, together[place], first=place)


def check_hidden_states(engine: Engine, random: np.random.Generator, batch: int) -> None:
    """Logits of hidden states are those of the passes that return logits."""
    forward = _Forward(engine, batch)
    prompts, following = _texts(engine, random, batch)
    every = forward.verify(prompts)
    expected = np.stack([logits[-1] for logits in every])
    forward.empty()
    forward.prefill(prompts)
    together = forward.decode(following)
    forward.empty()
    hidden = forward.run("batch_prefill_to_last_hidden_states", prompts)[0]
    ends = _ends(prompts)
    chosen = engine.call("batch_select_last_hidden_states", hidden, ends)[0]
    assert (chosen == hidden[ends]).all()
    forward.agree(forward.logits(chosen), expected)
    assert (forward.logits(chosen, name="batch_get_logits") == forward.logits(chosen)).all()
    after = forward.run("batch_decode_to_last_hidden_states", _each(following), rows=batch)[:, 0]
    forward.agree(forward.logits(after), together)
    forward.empty()
    hidden = forward.run("batch_verify_to_last_hidden_states", prompts)[0]
    forward.agree(forward.logits(hidden), np.concatenate(every))
    forward.empty()
    hidden = forward.run("prefill_to_last_hidden_states", prompts[:1])[0]
    forward.agree(forward.logits(hidden), every[0])
    after = forward.run("decode_to_last_hidden_states", [following[:1]])[0]
    forward.agree(forward.logits(after)[0], together[0])
    table = random.standard_normal((batch + 2, hidden.shape[1])).astype(hidden.dtype)
    rows, places = table[:batch] * 2, random.permutation(batch + 2)[:batch].astype(np.int32)
    assert (engine.call("scatter_hidden_states", rows, places, table)[3][places] == rows).all()
    assert (engine.call("gather_hidden_states", table, places, rows)[3] == table[places]).all()


def check_embedding_decoder(engine: Engine, random: np.random.Generator, batch: int) -> None:
    """Hidden states of texts at once, and of one text at a time whose last token comes by itself."""
    forward = _Forward(engine, batch)
    prompts, following = _texts(engine, random, batch)
    together = np.split(forward.run("batch_prefill_to_last_hidden_states", prompts)[0], _ends(prompts)[:-1] + 1)
    after = forward.run("batch_decode_to_last_hidden_states", _each(following), rows=batch)[:, 0]
    assert np.ptp(after) > 0.1, "weights whose hidden states say nothing"
    forward.empty()
    for place, prompt in enumerate(prompts):
        found = forward.run("prefill_to_last_hidden_states", [prompt], first=place)[0]
        forward.agree(found, together[place])
        found = forward.run("decode_to_last_hidden_states", [following[place : place + 1]], first=place)[0, 0]
        forward.agree(found, after[place])


def check_encoder(engine: Engine, random: np.random.Generator, batch: int) -> None:
    """Texts of unequal lengths, padded, have the hidden states of each text alone."""
    texts, _ = _texts(engine, random, batch)
    tokens = random.integers(2, engine.active, (batch, max(map(len, texts)))).astype(np.int32)
    mask = np.zeros_like(tokens)
    for row, text in enumerate(texts):
        tokens[row, : len(text)], mask[row, : len(text)] = text, 1
    prefill, tensor = engine.machine.entry("prefill"), engine.machine.tensor
    found = np.array(prefill(tensor(tokens), tensor(mask), engine.weights).numpy())
    for row, text in enumerate(texts):
        alone = prefill(tensor(text[None]), tensor(np.ones((1, len(text)), np.int32)), engine.weights).numpy()
        assert np.ptp(alone) > 0.1, "weights whose hidden states say nothing"
        _agree(engine, found[row, : len(text)], np.array(alone)[0])


class _Forward:
    """Forward passes of sequences 0 to `batch` - 1, whose cache and states are created as MLC-LLM's engine does."""

    def __init__(self, engine: Engine, batch: int) -> None:
        self.engine, self.machine, self.batch = engine, engine.machine, batch
        (hidden,) = self.machine.entry("alloc_embedding_tensor")().shape[1:]
        self.hidden = int(hidden)
        self.window = int(engine.metadata["sliding_window_size"])
        shape = self.machine.shape
        self.states: list[Any] = []
        if engine.kind.has_pages:
            sizes = (batch, batch * 64, int(engine.metadata["prefill_chunk_size"]), _PAGE_TOKENS, int(self.window > 0))
            self.states.append(self.machine.entry("create_tir_paged_kv_cache")(*map(shape, sizes)))
        if engine.kind.is_recurrent:
            self.states.append(self.machine.entry("create_rnn_state")(shape(batch), shape(_HISTORY)))
        self.length = [0] * batch
        self._strays: set[int] = set()
        self._add()

    def empty(self) -> None:
        """Take all tokens of all sequences back, or, where that cannot be, begin the sequences again."""
        taken_back = not self.engine.kind.is_recurrent and self.window <= 0
        for sequence, length in enumerate(self.length):
            for state in self.states:
                if taken_back:
                    self._function("kv_state_popn")(state, sequence, length)
                else:
                    self._function("kv_state_remove_sequence")(state, sequence)
        self.length = [0] * self.batch
        if not taken_back:
            self._add()
        if self.engine.kind.has_pages:
            assert self._function("attention_kv_cache_get_total_sequence_length")(self.states[0]) == 0

    def run(self, name: str, tokens: Sequence[Array], *more: Array, rows: int = 1, first: int = 0) -> Array:
        """A forward pass over the next tokens of sequences from `first` on. Embeddings come as (rows, n, hidden)."""
        machine = self.machine
        sequences, lengths = range(first, first + len(tokens)), [len(each) for each in tokens]
        embedded = machine.entry("embed")(machine.tensor(np.concatenate(tokens)), self.engine.weights)
        view = embedded._create_view((rows, sum(lengths) // rows, self.hidden))
        for state in self.states:
            self._function("kv_state_begin_forward")(state, machine.shape(*sequences), machine.shape(*lengths))
        given = [machine.tensor(array) for array in more]
        result, *self.states = machine.entry(name)(view, *given, *self.states, self.engine.weights)
        for state in self.states:
            self._function("kv_state_end_forward")(state)
        for sequence, length in zip(sequences, lengths, strict=True):
            self.length[sequence] += length
        return np.array(result.numpy())

    def verify(self, prompts: Sequence[Array]) -> list[Array]:
        """Logits of every token, a sequence; recurrent layers take one at a time."""
        if self.engine.kind.is_recurrent:
            return [self.run("batch_verify", [prompt], first=place)[0] for place, prompt in enumerate(prompts)]
        return np.split(self.run("batch_verify", prompts)[0], _ends(prompts)[:-1] + 1)

    def prefill(self, prompts: Sequence[Array]) -> Array:
        return self.run("batch_prefill", prompts, _ends(prompts))[0]

    def decode(self, following: Array) -> Array:
        return self.run("batch_decode", _each(following), rows=self.batch)[:, 0]

    def logits(self, hidden: Array, *, name: str = "get_logits") -> Array:
        """(n, hidden) → (n, vocabulary)."""
        return np.array(self.machine.entry(name)(self.machine.tensor(hidden), self.engine.weights).numpy())

    def agree(self, found: Array, expected: Array, *, first: int = 0) -> None:
        """Rows from number `first` on are equal but for rounding. Of a mixture in 16 bits one row in 16 may be another:
        a token gets another expert by rounding, where the scores of two are almost equal."""
        if not (_is_half(self.engine) and self.engine.has_experts):
            _agree(self.engine, found, expected)
            return
        assert found.shape == expected.shape
        near = np.isclose(found, expected, rtol=0, atol=_tolerance(self.engine, expected)).all(axis=-1)
        self._strays.update((first + np.flatnonzero(~np.atleast_1d(near))).tolist())
        assert len(self._strays) <= self.batch // 16, f"rows that differ: {sorted(self._strays)}"

    def _add(self) -> None:
        for sequence in range(self.batch):
            for state in self.states:
                self._function("kv_state_add_sequence")(state, sequence)
            if self.window > 0:
                sinks = int(self.engine.metadata["attention_sink_size"])
                self._function("attention_kv_cache_enable_sliding_window_for_seq")(
                    self.states[0], sequence, self.window, sinks
                )

    def _function(self, name: str) -> Any:
        return self.machine.function(f"vm.builtin.{name}")


def _agree(engine: Engine, found: Array, expected: Array) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), atol=_tolerance(engine, expected))


def _tolerance(engine: Engine, expected: Array) -> float:
    largest = float(np.abs(expected.astype(np.float64)).max())
    return (3e-2 if _is_half(engine) else 1e-4) * largest


def _is_half(engine: Engine) -> bool:
    return bool(engine.metadata["params"][-1]["dtype"] != "float32")


def _texts(engine: Engine, random: np.random.Generator, batch: int) -> tuple[list[Array], Array]:
    """Prompts of 3 to 6 tokens, and a token after each. Tokens 0 and 1 are no padding in between."""
    lengths = [3 + place % 4 for place in range(batch)]
    prompts = [random.integers(2, engine.active, length).astype(np.int32) for length in lengths]
    return prompts, random.integers(2, engine.active, batch).astype(np.int32)


def _ends(prompts: Sequence[Array]) -> Array:
    """The positions of the last tokens."""
    return (np.cumsum([len(prompt) for prompt in prompts]) - 1).astype(np.int32)


def _each(tokens: Array) -> list[Array]:
    return np.split(tokens, len(tokens))
