"""Calls of the functions by which engines change logits, sample and move rows, each checked against NumPy.

A token that is sampled has to be the one that exact sums choose, or one next to it whose sum differs by rounding alone.
"""

from __future__ import annotations

import numpy as np

from mlcbuild.runtime.logits import Logits
from mlcbuild.runtime.sampling import Sampler, Sampling
from mlcbuild.runtime.token_chooser import TokenChooser
from tests.engine_functions import Engine
from tests.engine_weights import Array

ROUNDING = 2e-5  # by which a sum of a vocabulary of float32 may differ from the exact one
LOWEST = np.finfo(np.float32).min


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


def check_token_chooser(engine: Engine, random: np.random.Generator, batch: int) -> None:
    """Tokens are chosen on the device: the first of the likeliest, or by the number that the row's sampler draws."""
    given = (random.standard_normal((batch, 1, engine.vocabulary)) * 4).astype(np.float32)
    given[:, :, engine.active :] = 100  # padding of the table
    given[0, 0, [5, 9]] = 50  # two are as likely
    logits = Logits(engine.machine, engine.machine.tensor(given), rows=batch)
    numbers = given[:, 0, : engine.active].astype(np.float64)
    chooser = TokenChooser(engine.machine)
    assert chooser.is_on_device
    greedy = Sampler(Sampling())
    likeliest = numbers.argmax(axis=1).tolist()
    assert chooser.choose(logits, [greedy] * batch) == likeliest
    assert chooser.choose(logits.last(), [greedy]) == likeliest[-1:]
    kinds = [Sampling(), Sampling(temperature=0.7, seed=1), Sampling(temperature=1.5, top_p=0.6, seed=2)]
    for first in (1, 0):  # without top_p, and with it
        samplings = [kinds[row % (len(kinds) - first)] for row in range(batch)]
        tokens = chooser.choose(logits, [Sampler(each) for each in samplings])
        for row, (sampling, token) in enumerate(zip(samplings, tokens, strict=True)):
            if not sampling.temperature:
                assert token == likeliest[row]
                continue
            weights = np.exp((numbers[row] - numbers[row].max()) / sampling.temperature)
            order = np.argsort(-weights)
            kept = int((np.cumsum(weights[order]) < sampling.top_p * weights.sum()).sum()) + 1
            weights[order[kept:]] = 0
            drawn = np.array([Sampler(sampling).number()])
            check_chosen((weights / weights.sum())[None], np.array([token]), drawn)


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
