"""Perplexity: how well a model expects the tokens of a text, each given those before it (teacher forcing).

It is exp of the mean negative log-likelihood in nats, as transformers' page on perplexity has it: a text longer than a
window is read in windows that begin `stride` tokens apart, and each scores the tokens that none before it scored. The
first token of a text, and without an overlap of each window, has nothing before it and is not scored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcbuild.errors import UsageError
from mlcbuild.runtime.model import Model

_PIECE_TOKENS = 128  # whose logits are in memory at a time
WindowDone = Callable[[int, int], None]  # windows that are done, of how many


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Tokens [begin, end) of a text, of which [scored, end) are scored."""

    begin: int
    scored: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Perplexity:
    """What was measured. `negative_log_likelihood` is the mean over `scored` tokens, in nats."""

    negative_log_likelihood: float
    tokens: int  # of the text
    scored: int
    windows: int

    @property
    def perplexity(self) -> float:
        """Infinite where it is beyond float64."""
        try:
            return math.exp(self.negative_log_likelihood)
        except OverflowError:
            return math.inf


def windows_of(tokens: int, *, window: int, stride: int) -> Iterator[Window]:
    """The windows of a text, in order; each token but the first is in the scored part of at most one."""
    scored = 0
    for begin in range(0, tokens, stride):
        end = min(begin + window, tokens)
        if max(scored, begin + 1) < end:
            yield Window(begin=begin, scored=max(scored, begin + 1), end=end)
        scored = end
        if end == tokens:
            return


def measure_perplexity(
    model: Model,
    tokens: Sequence[int],
    *,
    window: int,
    stride: int,
    done: WindowDone = lambda _done, _total: None,
) -> Perplexity:
    """The perplexity of a text of at least two tokens. Raises UsageError for a text that is shorter, a window that the
    model has no room for, and logits that are not finite."""
    if len(tokens) < 2:
        count = f"{len(tokens)} token{'' if len(tokens) == 1 else 's'}"
        raise UsageError(
            f"the text has {count}: perplexity takes two or more, because each is expected of those before it"
        )
    if window < 2 or not 0 < stride <= window:
        raise UsageError(
            f"windows of {window} tokens, {stride} apart: a window has two or more, and a stride at most it"
        )
    if model.cache_sizes.is_bounded and window > model.context_window_size:
        raise UsageError(
            f"windows of {window} tokens do not fit the model's context of {model.context_window_size}",
            advice=("give a shorter window: a longer text is read in several", "or override context_window_size"),
        )
    all_windows = tuple(windows_of(len(tokens), window=window, stride=stride))
    total, scored = 0.0, 0
    for number, each in enumerate(all_windows, 1):
        total += _negative_log_likelihood(model, tokens, each)
        scored += each.end - each.scored
        done(number, len(all_windows))
    return Perplexity(
        negative_log_likelihood=total / scored, tokens=len(tokens), scored=scored, windows=len(all_windows)
    )


def _negative_log_likelihood(model: Model, tokens: Sequence[int], window: Window) -> float:
    """The sum over the scored tokens of a window, each by the logits after the token before it."""
    given = tokens[window.begin : window.end - 1]
    model.reset(capacity=len(given))
    total = 0.0
    for first in range(0, len(given), _PIECE_TOKENS):
        position = window.begin + first  # of the token that the first row follows
        for rows in model.prefill_in_pieces(given[first : first + _PIECE_TOKENS], every_token=True):
            expected = np.asarray(tokens[position + 1 : position + 1 + len(rows)])
            chosen = slice(max(0, window.scored - position - 1), None)
            total += _sum_of(rows[chosen, : model.active_vocab_size], expected[chosen], window)
            position += len(rows)
    return total


def _sum_of(rows: npt.NDArray[Any], expected: npt.NDArray[np.int_], window: Window) -> float:
    """Minus the sum of log softmax(rows)[i, expected[i]], in float64."""
    if not len(rows):
        return 0.0
    if not np.isfinite(rows).all():
        raise UsageError(
            f"some logits are not finite numbers, in the window of tokens {window.begin} to {window.end - 1}",
            advice=("a kernel overflows or divides by zero: try the model without quantization, or in float32",),
        )
    numbers = rows.astype(np.float64)
    largest = numbers.max(axis=1)
    logarithms = largest + np.log(np.exp(numbers - largest[:, None]).sum(axis=1))
    return float((logarithms - numbers[np.arange(len(numbers)), expected]).sum())
