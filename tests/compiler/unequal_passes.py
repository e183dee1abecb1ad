"""Several sequences of different lengths in every forward pass of a library."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.compiler.running import Array, Library

Check = Callable[[Array, int, int], object]


def check_unequal_passes(
    library: Library,
    texts: Sequence[list[int]],
    check: Check,
    *,
    prefills: Sequence[list[int]],
    decoded: int,
    verified: list[int],
) -> None:
    """Give three sequences so many tokens of their `texts` in each of the `prefills`, then `decoded` one by one, and
    then those `verified`, of which all have logits. `check(logits, sequence, place)` is called with the logits behind
    the token at a place."""
    done = [0, 0, 0]
    for sequence in range(3):
        library.add(sequence)
    for counts in prefills:
        pieces = [text[at : at + count] for text, at, count in zip(texts, done, counts, strict=True)]
        embedded = library.embed([token for piece in pieces for token in piece])[None]
        last = (np.cumsum(counts) - 1).astype("int32")
        logits = library.run("batch_prefill", [0, 1, 2], counts, embedded, last)[0]
        done = [at + count for at, count in zip(done, counts, strict=True)]
        for sequence in range(3):
            check(logits[sequence], sequence, done[sequence] - 1)
    for _ in range(decoded):
        embedded = library.embed([text[at] for text, at in zip(texts, done, strict=True)])[:, None]
        logits = library.run("batch_decode", [0, 1, 2], [1, 1, 1], embedded)[:, 0]
        for sequence in range(3):
            check(logits[sequence], sequence, done[sequence])
        done = [at + 1 for at in done]
    pieces = [text[at : at + count] for text, at, count in zip(texts, done, verified, strict=True)]
    embedded = library.embed([token for piece in pieces for token in piece])[None]
    logits = library.run("batch_verify", [0, 1, 2], verified, embedded)[0]
    row = 0
    for sequence, count in enumerate(verified):
        for number in range(count):
            check(logits[row], sequence, done[sequence] + number)
            row += 1
