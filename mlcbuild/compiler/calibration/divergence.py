"""How far a model's predictions go from those of the model as it is, if one of its matrices is stored by a scheme.

For each token of a text that is read, p are the probabilities of the next token as the model in float32 has them, and q
those of the same model with one matrix changed:

    divergence = Σ p · log(p / q)                  in nats, the mean over all tokens (Kullback and Leibler 1951)

Of an encoder, which predicts nothing, it is the squared change of its hidden states, relative to their squares. A model
with several changed matrices diverges by about the sum of what each does: SmolLM2-135M in q4f16_1 by 0.460, and its
matrices one by one by 0.472 in all.

All changed models go through the layers side by side, each from the layer of its matrix on, so the weights of one
layer are in memory at a time. Divergences are rounded to `_DIGITS` digits: what exponentials and sums are in the last
bits may depend on the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from mlcbuild.compiler.calibration.forward_pass import ObservedModel
from mlcbuild.compiler.calibration.observation import BEGIN, END, LOGITS
from mlcbuild.compiler.calibration.samples import Tokens
from mlcbuild.compiler.weights.tensor import Array

MOST_TOKENS = 512  # of the sample that are read, but for a last piece
_DIGITS = 4
_ROWS = 64  # whose probabilities are computed at a time
_AS_IT_IS = ""  # the name of the model without a change


def first_samples(samples: Iterable[Tokens]) -> list[Tokens]:
    """So many of the samples as have `MOST_TOKENS` tokens together; one at least."""
    found: list[Tokens] = []
    for sample in samples:
        if found and sum(map(len, found)) + len(sample) > MOST_TOKENS:
            break
        found.append(sample)
    return found


def divergences(
    model: ObservedModel, samples: Sequence[Tokens], names: Iterable[str], changed: Callable[[str], Array]
) -> dict[str, float]:
    """Those of the matrices of these names, each changed to what `changed` answers, which is asked once for each place
    that the matrix is read at. A matrix that no function reads has none."""
    wanted = set(names)
    observation = model.observation
    tables = wanted & {observation.embedding, observation.positions, observation.types}
    hidden = {_AS_IT_IS: [model.embedded(sample) for sample in samples]}
    for name in sorted(tables):
        table = {name: changed(name)}
        hidden[name] = [model.embedded(sample, table) for sample in samples]
    states = model.states_for(samples)
    if observation.begin is not None:
        weights = model.tensors(observation.begin)
        hidden = {name: list(model.through(BEGIN, weights, each, None)) for name, each in hidden.items()}
    for number in range(observation.layers.count):
        function, step = observation.step(number)
        before = hidden[_AS_IT_IS]
        weights = model.tensors(step)
        hidden = {name: list(model.through(function, weights, each, states)) for name, each in hidden.items()}
        for name in step.parameters:
            if name in wanted:
                weights = model.tensors(step, {name: changed(name)})
                hidden[name] = list(model.through(function, weights, before, states))
    if observation.end is None or observation.logits is None:
        own = hidden.pop(_AS_IT_IS)
        return {name: _rounded(_relative(each, own)) for name, each in hidden.items()}
    weights = model.tensors(observation.end)
    hidden = {name: list(model.through(END, weights, each, None)) for name, each in hidden.items()}
    return _of_logits(model, hidden, wanted, changed)


def _of_logits(
    model: ObservedModel, hidden: Mapping[str, list[Array]], wanted: set[str], changed: Callable[[str], Array]
) -> dict[str, float]:
    """The divergences of all, whose hidden states behind the last norm are given."""
    step = model.observation.logits
    assert step is not None
    weights = model.tensors(step)
    heads = {name: model.tensors(step, {name: changed(name)}) for name in step.parameters if name in wanted}
    total = dict.fromkeys([name for name in (*hidden, *heads) if name != _AS_IT_IS], 0.0)
    tokens = 0

    def logits(name: str, begin: int, piece: int) -> Array:
        rows = hidden.get(name, hidden[_AS_IT_IS])[piece][begin : begin + _ROWS]
        (found,) = model.through(LOGITS, heads.get(name, weights), [rows], None)
        return found

    for piece, rows in enumerate(hidden[_AS_IT_IS]):
        tokens += len(rows)
        for begin in range(0, len(rows), _ROWS):
            expected = _log_probabilities(logits(_AS_IT_IS, begin, piece))
            probabilities = np.exp(expected)
            for name in total:
                found = _log_probabilities(logits(name, begin, piece))
                total[name] += float((probabilities * (expected - found)).sum())
    return {name: _rounded(max(sum_of_tokens, 0.0) / tokens) for name, sum_of_tokens in total.items()}


def _log_probabilities(logits: Array) -> Array:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    found: Array = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return found


def _relative(found: Sequence[Array], expected: Sequence[Array]) -> float:
    def squares(arrays: Iterator[Array]) -> float:
        return float(sum((array.astype(np.float64) ** 2).sum() for array in arrays))

    changes = (one - other for one, other in zip(found, expected, strict=True))
    size = squares(iter(expected))
    return squares(changes) / size if size else 0.0


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
