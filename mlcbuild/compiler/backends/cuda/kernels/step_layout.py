"""Which places of a row a thread has in a step of a product by tensor cores.

Some `threads` share a row, four unless said otherwise. A thread has `pieces` of `piece` neighbouring places, and those
of the threads lie next to each other: what a warp reads at once of a row is then as long as they can read at once.
Places come in words of eight.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from mlcbuild.compiler.kernels.building import Expression

_WORD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLayout:
    piece: int
    pieces: int
    threads: int = 4

    @property
    def step(self) -> int:
        """Places of a row in a step."""
        return self.threads * self.piece * self.pieces

    @property
    def words(self) -> int:
        """Words of a thread in a step."""
        return self.piece * self.pieces // _WORD

    def steps(self, k: int) -> int:
        """Steps along a row of k places."""
        return -(-k // self.step)

    def number(self, step: Expression, piece: Expression, thread: Expression) -> Expression:
        """Which of a row's pieces is a thread's piece of a step."""
        return step * (self.threads * self.pieces) + piece * self.threads + thread

    def piece_of(self, word: Expression) -> tuple[Expression, Expression]:
        """The piece that a word is of, and where in the piece it begins."""
        if self.pieces == 1:
            return 0, word * _WORD
        words = self.piece // _WORD
        return tirx.floordiv(word, words), tirx.floormod(word, words) * _WORD

    def place(self, word: Expression, thread: Expression) -> Expression:
        """Where a thread's word begins in a step."""
        piece, within = self.piece_of(word)
        return piece * (self.threads * self.piece) + thread * self.piece + within
