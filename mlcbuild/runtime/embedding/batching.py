"""Which texts are computed together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def batches(lengths: Sequence[int], *, most_texts: int, most_tokens: int) -> Iterator[list[int]]:
    """The numbers of texts of these lengths in tokens, each in one batch of at most `most_texts`: texts of like length
    together, so that little is padding. A batch as long as its longest text, times its number of texts, has at most
    `most_tokens`, unless it is one text."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda each: (-lengths[each], each)):
        longest = lengths[batch[0]] if batch else lengths[number]
        if batch and (len(batch) == most_texts or (len(batch) + 1) * longest > most_tokens):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
