"""A conversation as WebLLM has it: one sequence, whose prompt comes in pieces, and whose tokens are sampled one by one.

By `llm_chat.ts` of its release 0.2.83. It differs from MLC-LLM's engine in what it calls: a piece of one token goes
through `decode`, even the first of all, and a conversation begins anew by `kv_state_clear`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.engine_functions import Engine, Kind
from tests.engine_logits import LOWEST, check_chosen
from tests.engine_weights import Array

_CONTEXT, _PAGE_TOKENS, _HISTORY = 64, 16, 1
_PIECES = ((1, 4), (4, 1))
"""Numbers of tokens of the pieces in which the prompt comes, at each time."""


def check_conversation(engine: Engine, random: np.random.Generator, batch: int) -> None:
    """The same prompt in other pieces, after the states were cleared, has the same logits; each step of sampling takes
    what the step before it left. `batch` is not WebLLM's: it has one sequence."""
    prompt = random.integers(2, engine.active, sum(_PIECES[0])).astype(np.int32)
    following = int(random.integers(2, engine.active))
    conversation, rows = _Conversation(engine), []
    for pieces in _PIECES:
        conversation.begin()
        for piece in np.split(prompt, np.cumsum(pieces)[:-1]):
            logits = conversation.forward(piece)
        rows.append(np.stack([logits, conversation.forward(np.array([following], np.int32))]))
    assert np.ptp(rows[0]) > 0.1, "weights whose logits say nothing"
    half = engine.metadata["quantization"].startswith(("q0f16", "q4f16"))
    bound = (3e-2 if half else 1e-4) * np.abs(rows[0]).max()
    if not (half and engine.has_experts):  # A token may get another expert by rounding.
        np.testing.assert_allclose(rows[1], rows[0], rtol=0, atol=bound)
    _check_sampling(engine, random, rows[0][-1:])


def check_encoder_of_web(engine: Engine, random: np.random.Generator, batch: int) -> None:
    """Sizes that WebLLM refuses an encoder for. How it calls `prefill` is `tests.engine_passes.check_encoder`'s."""
    sizes = {name: engine.metadata[name] for name in ("prefill_chunk_size", "context_window_size", "max_batch_size")}
    assert sizes["prefill_chunk_size"] == sizes["context_window_size"] > 0, sizes
    assert sizes["max_batch_size"] > 0, sizes


class _Conversation:
    """The states of a sequence, created with the numbers that WebLLM's pipeline has."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._machine = engine, engine.machine
        self._window = int(engine.metadata["sliding_window_size"])
        self._states: list[Any] = []
        shape, chunk = self._machine.shape, int(engine.metadata["prefill_chunk_size"])
        if engine.kind.has_pages:
            total = self._window if self._window != -1 else _CONTEXT
            sizes = (1, total, chunk, _PAGE_TOKENS, int(self._window != -1))
            self._states.append(self._machine.entry("create_tir_paged_kv_cache")(*map(shape, sizes)))
        if engine.kind.is_recurrent:
            self._states.append(self._machine.entry("create_rnn_state")(shape(1), shape(_HISTORY)))

    def begin(self) -> None:
        for state in self._states:
            self._function("kv_state_clear")(state)
            self._function("kv_state_add_sequence")(state, 0)
        if self._window != -1 and self._engine.kind.has_pages:
            sinks = int(self._engine.metadata["attention_sink_size"])
            enable = self._function("attention_kv_cache_enable_sliding_window_for_seq")
            enable(self._states[0], 0, self._window, sinks)

    def forward(self, tokens: Array) -> Array:
        """Logits (vocabulary,) after more tokens. Of libraries with `prefill` and `decode` WebLLM takes these, of
        hybrid ones `batch_prefill` and `batch_decode`."""
        machine, count = self._machine, len(tokens)
        embedded = machine.entry("embed")(machine.tensor(tokens), self._engine.weights)
        view = embedded._create_view((1, *embedded.shape))
        for state in self._states:
            self._function("kv_state_begin_forward")(state, machine.shape(0), machine.shape(count))
        name = "prefill" if count > 1 else "decode"
        positions: Sequence[Any] = ()
        if self._engine.kind is Kind.HYBRID:
            name = f"batch_{name}"
            positions = [machine.tensor(np.array([count - 1], np.int32))] if count > 1 else ()
        results = machine.entry(name)(view, *positions, *self._states, self._engine.weights)
        for state in reversed(self._states):
            self._function("kv_state_end_forward")(state)
        logits: Array = np.array(results[0].numpy())
        assert logits.dtype == np.float32
        assert logits.size == self._engine.vocabulary
        return logits.reshape(-1)

    def _function(self, name: str) -> Any:
        return self._machine.function(f"vm.builtin.{name}")


def _check_sampling(engine: Engine, random: np.random.Generator, logits: Array) -> None:
    """The grammar's mask, biases and penalties, each of one row, then softmax and, where libraries sample, a token."""
    width, none = engine.vocabulary, np.zeros(1, np.int32)
    allowed = random.random((1, width)) < 0.5
    bits = np.packbits(np.pad(allowed, ((0, 0), (0, -width % 32))), axis=1, bitorder="little").view(np.int32)
    row = engine.call("apply_bitmask_inplace", logits, none, bits)[1]
    assert (row == np.where(allowed, logits, LOWEST)).all()
    tokens = np.flatnonzero(allowed[0, : engine.active])[:3].astype(np.int32)
    of_row = np.zeros_like(tokens)
    biased, biases = row.copy(), np.array([2, -1, 0.5], np.float32)
    biased[0, tokens] += biases
    row = engine.call("apply_logit_bias_inplace", row, of_row, tokens, biases)[1]
    assert (row == biased).all()
    counts, penalties = np.array([1, 2, 1], np.int32), np.array([[0.3, 0.2, 1.2]], np.float32)
    left = row[0, tokens] - 0.3 - counts * 0.2
    penalized = row.copy()
    penalized[0, tokens] = np.where(left < 0, left * 1.2, left / 1.2)
    row = engine.call("apply_penalty_inplace", row, none, of_row, tokens, counts, penalties)[1]
    np.testing.assert_allclose(row, penalized, atol=1e-4)
    probabilities = engine.call("softmax_with_temperature", row[None], np.array([0.7], np.float32))[0][0]
    weights = np.exp((row - row[0, : engine.active].max()).astype(np.float64) / 0.7)
    weights[0, engine.active :] = 0
    np.testing.assert_allclose(probabilities, weights / weights.sum(), rtol=1e-3, atol=1e-7)
    if not engine.has("argsort_probs"):
        return
    ordered, indices = engine.call("argsort_probs", probabilities)[:2]
    number, most = random.random(1).astype(np.float32), np.array([0.9], np.float32)
    token = engine.call("sample_with_top_p", ordered, indices, number, none, most)[0]
    place = np.flatnonzero(indices[0] == token[0])
    sums = np.cumsum(ordered[0].astype(np.float64))
    kept = sums[np.argmax(sums >= 0.9)]
    check_chosen(ordered, place, number * kept)
