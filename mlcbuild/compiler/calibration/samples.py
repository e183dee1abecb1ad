"""The sample of texts that a model is observed on, as token ids, and in which shard each part of it is.

A text is cut into pieces of so many tokens, each behind the tokens with which the model expects a text to begin. Which
pieces are taken, and which shard has one, depends on nothing but its own tokens and the seed: so another text, or a
larger sample, adds pieces to some shards and leaves the others as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.compiler import json_values
from mlcbuild.errors import StageError

VERSION = 1
Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleShard:
    """A shard of the sample, in its order."""

    samples: tuple[Tokens, ...]


def read_samples(path: Path) -> SampleShard:
    """Raises StageError for another file."""
    return json_values.read(SampleShard, path, version=VERSION)


def write_samples(shard: SampleShard, path: Path) -> None:
    json_values.write(shard, path, version=VERSION)


def pieces_of(tokens: Sequence[int], *, beginning: Sequence[int], length: int) -> Iterator[Tokens]:
    """A text's pieces of `length` tokens, the `beginning` counted. A last one that is shorter than half is left out,
    unless the text has no other."""
    step = length - len(beginning)
    if step < 1:
        raise StageError(
            f"samples of {length} tokens have no room behind the {len(beginning)} that the model begins texts with",
            advice=("raise `tokens`",),
        )
    for begin in range(0, len(tokens), step):
        piece = tokens[begin : begin + step]
        if begin == 0 or 2 * len(piece) >= step:
            yield (*beginning, *piece)


def chosen(pieces: Sequence[Tokens], *, samples: int, seed: int) -> list[Tokens]:
    """So many of the pieces, each once, in a seeded order. Raises StageError where there are fewer."""
    by_digest = {_digest(piece, seed, b"order"): piece for piece in pieces}
    if len(by_digest) < samples:
        raise StageError(
            f"the texts make {len(by_digest)} different samples, and {samples} are asked for",
            advice=("add texts, or lower `samples` or `tokens`",),
        )
    return [by_digest[digest] for digest in sorted(by_digest)[:samples]]


def sharded(samples: Sequence[Tokens], *, shards: int, seed: int) -> dict[int, SampleShard]:
    """The shards by their numbers, but for those without samples."""
    found: dict[int, list[Tokens]] = {}
    for sample in samples:
        number = int.from_bytes(_digest(sample, seed, b"shard")[:8], "big") % shards
        found.setdefault(number, []).append(sample)
    return {number: SampleShard(samples=tuple(found[number])) for number in sorted(found)}


def _digest(piece: Tokens, seed: int, purpose: bytes) -> bytes:
    text = b" ".join(str(number).encode() for number in (seed, *piece))
    return hashlib.sha256(purpose + b" " + text).digest()
