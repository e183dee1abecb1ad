"""Which requests of a batch are computed next: continuous batching, as a decision without I/O.

A request is begun as soon as there is a sequence and as many pages of the KV cache as it can ever take, so none has to
be taken back. Prompts come before new tokens. Their pieces end at multiples of the chunk, whatever else is computed
with them: so a request has the same pieces, and but for its kernels the same rounding, in every batch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Tokens `begin` to `end` of a sequence's prompt; `is_last` if the prompt ends there."""

    sequence: int
    begin: int
    end: int
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """Pieces of prompts, at most one of a sequence, together at most a chunk."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """One token of each sequence."""

    sequences: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class _Running:
    prompt_tokens: int
    pages: int
    prefilled: int = 0


class BatchScheduler:
    """At most `max_sequences` at a time, with at most `max_pages` of the cache, prefilled in chunks of `chunk` tokens.

    The caller begins a request if `has_room`, carries out each step and ends requests.
    """

    def __init__(self, *, max_sequences: int, max_pages: int, chunk: int) -> None:
        self._max_sequences = max_sequences
        self._max_pages = max_pages
        self._chunk = chunk
        self._running: dict[int, _Running] = {}  # in the order of their beginning

    @property
    def running(self) -> int:
        return len(self._running)

    def has_room(self, pages: int) -> bool:
        used = sum(running.pages for running in self._running.values())
        return len(self._running) < self._max_sequences and used + pages <= self._max_pages

    def begin(self, sequence: int, *, prompt_tokens: int, pages: int) -> None:
        assert self.has_room(pages)
        assert sequence not in self._running
        assert prompt_tokens > 0
        self._running[sequence] = _Running(prompt_tokens=prompt_tokens, pages=pages)

    def end(self, sequence: int) -> None:
        del self._running[sequence]

    def next_step(self) -> Prefill | Decode | None:
        """None if no request is running. A step counts as done when it was returned."""
        if pieces := self._next_pieces():
            return Prefill(pieces=pieces)
        return Decode(sequences=tuple(self._running)) if self._running else None

    def _next_pieces(self) -> tuple[Piece, ...]:
        pieces: list[Piece] = []
        room = self._chunk
        for sequence, running in self._running.items():
            left = running.prompt_tokens - running.prefilled
            count = min(left, self._chunk)
            if count == 0:
                continue
            if count > room:  # not split, and not overtaken: a shorter prompt behind it waits
                break
            end = running.prefilled + count
            pieces.append(
                Piece(sequence=sequence, begin=running.prefilled, end=end, is_last=end == running.prompt_tokens)
            )
            running.prefilled = end
            room -= count
        return tuple(pieces)
