"""What serving engines look up in a library, and calls of it with an engine's arguments, each checked against NumPy.

`FUNCTIONS` are the names that MLC-LLM's engine (`cpp/serve/function_table.cc`) and WebLLM (`llm_chat.ts`) ask a library
for; docs/engines.md has them as a table. A token that is sampled has to be the one that exact sums choose, or one next
to it whose sum differs by rounding alone.
"""

from __future__ import annotations

import enum
import functools
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcbuild.errors import UsageError
from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.machine import Machine

Array = npt.NDArray[Any]

REPEATS = 20
ROUNDING = 2e-5  # by which a sum of a vocabulary of float32 may differ from the exact one
LOWEST = np.finfo(np.float32).min
_PAGE_TOKENS = 16


class Presence(enum.Enum):
    """Which libraries have a function."""

    ALL = "every library"
    GPU = "libraries for GPUs"
    HIDDEN_STATES = "with `hidden_states = true`"
    PAGES = "all but models of recurrent layers alone"
    RECURRENT = "models with recurrent layers"
    NONE = "no library"


FUNCTIONS: Mapping[str, Presence] = {
    "embed": Presence.ALL,
    "prefill": Presence.ALL,
    "decode": Presence.ALL,
    "batch_prefill": Presence.ALL,
    "batch_decode": Presence.ALL,
    "batch_verify": Presence.ALL,
    "create_tir_paged_kv_cache": Presence.PAGES,
    "softmax_with_temperature": Presence.ALL,
    "alloc_embedding_tensor": Presence.ALL,
    "apply_logit_bias_inplace": Presence.ALL,
    "apply_penalty_inplace": Presence.ALL,
    "apply_bitmask_inplace": Presence.ALL,
    "gather_probs": Presence.ALL,
    "scatter_probs": Presence.ALL,
    "_metadata": Presence.ALL,
    "multinomial_from_uniform": Presence.GPU,
    "argsort_probs": Presence.GPU,
    "sample_with_top_p": Presence.GPU,
    "sampler_take_probs": Presence.GPU,
    "sampler_verify_draft_tokens": Presence.GPU,
    "renormalize_by_top_p": Presence.GPU,
    "cuda_graph_alloc_init": Presence.GPU,
    "prefill_to_last_hidden_states": Presence.HIDDEN_STATES,
    "decode_to_last_hidden_states": Presence.HIDDEN_STATES,
    "batch_prefill_to_last_hidden_states": Presence.HIDDEN_STATES,
    "batch_decode_to_last_hidden_states": Presence.HIDDEN_STATES,
    "batch_verify_to_last_hidden_states": Presence.HIDDEN_STATES,
    "get_logits": Presence.HIDDEN_STATES,
    "batch_select_last_hidden_states": Presence.HIDDEN_STATES,
    "gather_hidden_states": Presence.HIDDEN_STATES,
    "scatter_hidden_states": Presence.HIDDEN_STATES,
    "create_flashinfer_paged_kv_cache": Presence.NONE,
    "create_rnn_state": Presence.RECURRENT,
    "batch_get_logits": Presence.NONE,
    "fuse_embed_hidden_states": Presence.NONE,
    "extend": Presence.NONE,
    "batch_extend": Presence.NONE,
    "image_embed": Presence.NONE,
}


class Engine:
    """Calls of one library's functions, with what those took that are timed."""

    def __init__(self, library: Path) -> None:
        self.machine = Machine(library)
        self.metadata = json.loads(str(self.machine.entry("_metadata")()))
        self.vocabulary = int(self.metadata["vocab_size"])
        self.active = int(self.metadata["active_vocab_size"])
        self.took: dict[str, float] = {}

    @functools.cached_property
    def weights(self) -> Any:
        """Random ones, made once: a recorded CUDA graph reads those that it was recorded with."""
        random = np.random.default_rng(0)
        expected = map(ExpectedTensor.of, self.metadata["params"])
        return self.machine.array([self.machine.tensor(_weights(random, tensor)) for tensor in expected])

    def has(self, name: str) -> bool:
        try:
            self.machine.entry(name)
        except UsageError:
            return False
        return True

    def call(self, name: str, *arrays: Array) -> list[Array]:
        """The results, then the arguments as the call has left them. Of a function that changes its arguments in place,
        what counts is its first call."""
        function = self.machine.entry(name)
        tensors = [self.machine.tensor(np.ascontiguousarray(array)) for array in arrays]
        result = function(*tensors)
        made = [result] if hasattr(result, "numpy") else list(result)
        found = [np.array(tensor.numpy()) for tensor in (*made, *tensors)]
        began = time.perf_counter()
        for _ in range(REPEATS):
            function(*tensors)
        tensors[0].numpy()  # waits for all of them
        self.took[f"{name} × {len(arrays[0])}"] = (time.perf_counter() - began) / REPEATS * 1e6
        return found


def probabilities(random: np.random.Generator, batch: int, width: int) -> Array:
    """Few tokens have most of the probability, some have none, and the last row is certain of one."""
    heavy = random.random((batch, width)) ** 16
    heavy[heavy < 1e-9] = 0
    heavy[-1] = 0
    heavy[-1, width // 3] = 1
    result: Array = (heavy / heavy.sum(axis=1, keepdims=True)).astype(np.float32)
    return result


def check_chosen(weights: Array, places: Array, wanted: Array, most: Array | None = None) -> None:
    """Place i is where the sum of row i of `weights` passes `wanted`[i], or passes it but for rounding; with `most`, a
    number from `wanted`[i] to `most`[i]."""
    sums = np.cumsum(weights.astype(np.float64), axis=1)
    upper = wanted if most is None else most
    for row, (place, least, greatest) in enumerate(zip(places, wanted, upper, strict=True)):
        below = sums[row, place - 1] if place else 0.0
        assert weights[row, place] > 0, f"an impossible token at {place}"
        far = max(below - greatest, least - sums[row, place])
        assert far <= ROUNDING, f"row {row}: {least} to {greatest} is {far} from token {place}'s part of the sum"


def check_softmax(engine: Engine, random: np.random.Generator, batch: int) -> None:
    logits = (random.standard_normal((batch, 1, engine.vocabulary)) * 4).astype(np.float32)
    logits[:, :, engine.active :] = 100  # padding of the table
    temperature = np.resize(np.array([1, 0, 0.6], np.float32), batch)
    found = engine.call("softmax_with_temperature", logits, temperature)[0][:, 0]
    assert (found[:, engine.active :] == 0).all()
    found, logits = found[:, : engine.active], logits[:, :, : engine.active]
    below = logits[:, 0].astype(np.float64) - logits.max(axis=2)
    scaled = below / np.where(temperature == 0, 1, temperature)[:, None]
    weights = np.where(temperature[:, None] == 0, below >= 0, np.exp(scaled))
    np.testing.assert_allclose(found, weights / weights.sum(axis=1, keepdims=True), rtol=1e-3, atol=1e-7)


def check_sampling(engine: Engine, random: np.random.Generator, batch: int) -> None:
    given = probabilities(random, batch, engine.vocabulary)
    rows = np.sort(random.integers(0, batch, batch)).astype(np.int32)
    numbers = random.random(batch).astype(np.float32)
    numbers[0] = 0
    tokens = engine.call("multinomial_from_uniform", given, numbers, rows)[0]
    check_chosen(given[rows], tokens, numbers)

    values, order = engine.call("argsort_probs", given)[:2]
    assert (np.sort(order, axis=1) == np.arange(engine.vocabulary)).all(), "not every token once"
    assert (values == np.take_along_axis(given, order, axis=1)).all()
    assert (np.diff(values, axis=1) <= 0).all(), "not in descending order"

    top_p = random.uniform(0.1, 1, batch).astype(np.float32)
    sampled = engine.call("sample_with_top_p", values, order, numbers, rows, top_p)[0]
    places = np.argmax(order[rows] == sampled[:, None], axis=1)
    sums = np.cumsum(values.astype(np.float64), axis=1)
    # Where top_p lies between two tokens but for rounding, one more or less is kept, and all that is sampled scales.
    kept, most = (
        sums[np.arange(batch), np.minimum((sums < top_p[:, None] + far).sum(axis=1), engine.vocabulary - 1)][rows]
        for far in (-ROUNDING, ROUNDING)
    )
    check_chosen(values[rows], places, numbers * kept, numbers * most)
    assert (places <= (sums < top_p[:, None] + ROUNDING).sum(axis=1)[rows]).all(), "a token that top_p leaves out"

    offsets = (rows.astype(np.int64) * engine.vocabulary + random.integers(0, 5, batch)).astype(np.int32)
    told, top, top_tokens = engine.call("sampler_take_probs", given, order, rows, sampled, offsets)[:3]
    assert (told == given[rows, sampled]).all()
    assert (top_tokens == order.reshape(-1)[offsets]).all()
    assert (top == values.reshape(-1)[offsets]).all()


def check_top_p(engine: Engine, random: np.random.Generator, batch: int) -> None:
    given = probabilities(random, batch, engine.vocabulary)
    top_p = random.uniform(0.1, 0.99, batch).astype(np.float32)
    first = np.stack([np.minimum(1 - top_p, 0.5), np.full(batch, 0.02), np.full(batch, 0.01)], axis=1)
    first = -np.sort(-first, axis=1).astype(np.float32)
    found = engine.call("renormalize_by_top_p", given, top_p, first)[0]
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-3)
    for row in range(batch):
        chosen = found[row] > 0
        kept = given[row][chosen].astype(np.float64)
        assert kept.sum() >= top_p[row] - ROUNDING, "too few are kept"
        assert kept.sum() - (kept == kept.min()).sum() * kept.min() <= top_p[row] + 1e-3, "too many are kept"
        assert kept.min() >= given[row][~chosen].max(), "a less likely token is kept instead"
        np.testing.assert_allclose(found[row][chosen], kept / kept.sum(), rtol=1e-3)


def check_drafts(engine: Engine, random: np.random.Generator, batch: int) -> None:
    """Chains of four drafts; the engine's first token of each is the root."""
    length, width = 5, engine.vocabulary
    nodes = np.arange(batch * length).reshape(batch, length)
    child = np.where(np.arange(length) < length - 1, nodes + 1, -1).reshape(-1).astype(np.int32)
    sibling = np.full(batch * length, -1, np.int32)
    drafts, model = (probabilities(random, batch * length, width) for _ in range(2))
    model[1::2] = np.roll(drafts, -1, axis=0)[1::2]  # what is drafted exactly is accepted
    tokens = drafts.argmax(axis=1).astype(np.int32)
    numbers = random.random(batch * length).astype(np.float32)
    roots = nodes[:, 0].astype(np.int32)
    arguments = (drafts, tokens, model, child, sibling, numbers, roots)
    changed, ends = engine.call("sampler_verify_draft_tokens", *arguments)[:2]
    expected = model.astype(np.float64)
    for number, root in enumerate(roots):
        node, draft = int(root), int(child[root])
        while draft != -1:
            left = np.maximum(expected[node] - drafts[draft], 0)
            token = tokens[draft]
            if expected[node, token] >= numbers[draft] * drafts[draft, token] or left.sum() < 1e-7:
                node, draft = draft, int(child[draft])
            else:
                expected[node] = left / left.sum()
                draft = int(sibling[draft])
        assert ends[number] == node, (number, int(ends[number]), node)
    np.testing.assert_allclose(changed, expected, rtol=1e-3, atol=1e-6)


def check_logits(engine: Engine, random: np.random.Generator, batch: int) -> None:
    width = engine.vocabulary
    logits = random.standard_normal((batch, width)).astype(np.float32)
    rows = np.repeat(np.arange(batch, dtype=np.int32), 7)
    tokens = np.concatenate([random.permutation(width)[:7] for _ in range(batch)]).astype(np.int32)
    biases = random.standard_normal(len(rows)).astype(np.float32)
    expected = logits.copy()
    expected[rows, tokens] += biases
    assert (engine.call("apply_logit_bias_inplace", logits, rows, tokens, biases)[1] == expected).all()

    order = random.permutation(batch).astype(np.int32)
    counts = random.integers(1, 9, len(rows)).astype(np.int32)
    penalties = random.uniform(0.1, 2, (batch, 3)).astype(np.float32)
    wide = logits.astype(np.float64)
    presence, frequency, repetition = penalties.astype(np.float64)[rows].T
    left = wide[order[rows], tokens] - presence - counts * frequency
    wide[order[rows], tokens] = np.where(left < 0, left * repetition, left / repetition)
    found = engine.call("apply_penalty_inplace", logits, order, rows, tokens, counts, penalties)[1]
    np.testing.assert_allclose(found, wide, atol=1e-4)

    allowed = random.random((batch, width)) < 0.5
    bits = np.packbits(np.pad(allowed, ((0, 0), (0, -width % 32))), axis=1, bitorder="little").view(np.int32)
    found = engine.call("apply_bitmask_inplace", logits, order, bits)[1]
    assert (found == np.where(allowed, logits, LOWEST)).all()


def check_moving(engine: Engine, random: np.random.Generator, batch: int) -> None:
    table, rows = (random.random((count, engine.vocabulary), np.float32) for count in (batch + 3, batch))
    places = random.permutation(batch + 3)[:batch].astype(np.int32)
    expected = table.copy()
    expected[places] = rows
    assert (engine.call("scatter_probs", rows, places, table)[3] == expected).all()
    assert (engine.call("gather_probs", table, places, rows)[3] == table[places]).all()


def check_forward(engine: Engine, random: np.random.Generator, batch: int) -> None:
    """Prompts of `batch` sequences and a token of each after it, by every forward pass: all agree, within rounding."""
    forward = _Forward(engine, batch)
    lengths = [3 + place % 4 for place in range(batch)]
    prompts = [random.integers(0, engine.active, length).astype(np.int32) for length in lengths]
    following = random.integers(0, engine.active, batch).astype(np.int32)
    everything = forward.run("batch_verify", lengths, np.concatenate(prompts), rows=1)
    ends = (np.cumsum(lengths) - 1).astype(np.int32)
    expected = everything[0, ends]
    forward.empty()
    last = forward.run("batch_prefill", lengths, np.concatenate(prompts), ends, rows=1)[0]
    forward.agree(last, expected)
    together = forward.run("batch_decode", [1] * batch, following, rows=batch)[:, 0]
    forward.empty()
    for place, prompt in enumerate(prompts):
        forward.agree(forward.run("prefill", [lengths[place]], prompt, rows=1, first=place)[0, 0], expected[place])
        alone = forward.run("decode", [1], following[place : place + 1], rows=1, first=place)[0, 0]
        forward.agree(alone, together[place])
    if not engine.has("get_logits"):
        return
    forward.empty()
    hidden = forward.run("batch_prefill_to_last_hidden_states", lengths, np.concatenate(prompts), rows=1)[0]
    chosen = engine.call("batch_select_last_hidden_states", hidden, ends)[0]
    assert (chosen == hidden[ends]).all()
    forward.agree(forward.logits(chosen), expected)
    after = forward.run("batch_decode_to_last_hidden_states", [1] * batch, following, rows=batch)[:, 0]
    forward.agree(forward.logits(after), together)
    forward.empty()
    for name in ("prefill", "batch_verify"):
        hidden = forward.run(f"{name}_to_last_hidden_states", lengths[:1], prompts[0], rows=1)[0]
        forward.agree(forward.logits(hidden), everything[0, : lengths[0]])
        if name == "prefill":
            after = forward.run("decode_to_last_hidden_states", [1], following[:1], rows=1)[0]
            forward.agree(forward.logits(after)[0], together[0])
        forward.empty()
    table = random.standard_normal((batch + 2, hidden.shape[1])).astype(hidden.dtype)
    rows, places = table[:batch] * 2, random.permutation(batch + 2)[:batch].astype(np.int32)
    assert (engine.call("scatter_hidden_states", rows, places, table)[3][places] == rows).all()
    assert (engine.call("gather_hidden_states", table, places, rows)[3] == table[places]).all()


class _Forward:
    """Forward passes with a cache that is created as MLC-LLM's engine does."""

    def __init__(self, engine: Engine, batch: int) -> None:
        self.machine, self.batch = engine.machine, batch
        self.half = engine.metadata["params"][-1]["dtype"] != "float32"
        self.weights = engine.weights
        chunk = int(engine.metadata["prefill_chunk_size"])
        (hidden,) = self.machine.entry("alloc_embedding_tensor")().shape[1:]
        self.hidden = int(hidden)
        shape = self.machine.shape
        self.cache = self.machine.entry("create_tir_paged_kv_cache")(
            shape(batch), shape(batch * 64), shape(chunk), shape(_PAGE_TOKENS), shape(0)
        )
        self.length = [0] * batch
        for sequence in range(batch):
            self.machine.function("vm.builtin.kv_state_add_sequence")(self.cache, sequence)

    def empty(self) -> None:
        """Take all tokens of all sequences back."""
        for sequence, length in enumerate(self.length):
            self.machine.function("vm.builtin.kv_state_popn")(self.cache, sequence, length)
            self.length[sequence] = 0
        counted = self.machine.function("vm.builtin.attention_kv_cache_get_total_sequence_length")(self.cache)
        assert counted == 0

    def run(self, name: str, lengths: list[int], tokens: Array, *more: Array, rows: int, first: int = 0) -> Array:
        """A forward pass over the next `lengths` tokens of sequences from `first` on. Embeddings come as (rows, n,
        hidden)."""
        machine = self.machine
        embedded = machine.entry("embed")(machine.tensor(tokens), self.weights)
        view = embedded._create_view((rows, len(tokens) // rows, self.hidden))
        sequences = range(first, first + len(lengths))
        machine.function("vm.builtin.kv_state_begin_forward")(
            self.cache, machine.shape(*sequences), machine.shape(*lengths)
        )
        given = [machine.tensor(array) for array in more]
        result, self.cache = machine.entry(name)(view, *given, self.cache, self.weights)
        machine.function("vm.builtin.kv_state_end_forward")(self.cache)
        for sequence, length in zip(sequences, lengths, strict=True):
            self.length[sequence] += length
        return np.array(result.numpy())

    def logits(self, hidden: Array) -> Array:
        return np.array(self.machine.entry("get_logits")(self.machine.tensor(hidden), self.weights).numpy())

    def agree(self, found: Array, expected: Array) -> None:
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=(3e-2 if self.half else 1e-4) * np.abs(expected).max())


def _weights(random: np.random.Generator, tensor: ExpectedTensor) -> Array:
    shape = tuple(tensor.shape)
    if tensor.dtype == "uint32":
        return random.integers(0, 2**32, shape, dtype=np.uint32)
    numbers = 1 + 0.1 * random.standard_normal(shape) if len(shape) == 1 else random.random(shape) / shape[-1]
    return np.asarray(numbers.astype(tensor.dtype))


Check = Callable[[Engine, np.random.Generator, int], None]
CHECKS: Mapping[Presence, tuple[Check, ...]] = {
    Presence.ALL: (check_softmax, check_logits, check_moving, check_forward),
    Presence.GPU: (check_sampling, check_top_p, check_drafts),
}
