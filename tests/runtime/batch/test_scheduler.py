"""Continuous batching keeps its limits, finishes everything, and cuts a prompt alike in every batch."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.runtime.batch.scheduler import BatchScheduler, Decode, Piece, Prefill

CHUNK = 8


def drive(
    requests: list[tuple[int, int, int]], *, sequences: int, pages: int
) -> tuple[dict[int, list[tuple[int, int]]], list[Prefill | Decode]]:
    """Begin (prompt tokens, new tokens, pages) in order as there is room. The pieces of each, and all steps."""
    scheduler = BatchScheduler(max_sequences=sequences, max_pages=pages, chunk=CHUNK)
    waiting = list(enumerate(requests))
    running: dict[int, int] = {}  # sequence → tokens to come
    pieces: dict[int, list[tuple[int, int]]] = {}
    steps: list[Prefill | Decode] = []
    while True:
        while waiting and scheduler.has_room(waiting[0][1][2]):
            number, (prompt, new, needed) = waiting.pop(0)
            scheduler.begin(number, prompt_tokens=prompt, pages=needed)
            running[number] = new
        assert len(running) == scheduler.running <= sequences
        assert sum(requests[number][2] for number in running) <= pages
        step = scheduler.next_step()
        if step is None:
            assert not waiting
            assert not running
            return pieces, steps
        steps.append(step)
        if isinstance(step, Prefill):
            assert 0 < sum(piece.end - piece.begin for piece in step.pieces) <= CHUNK
            for piece in step.pieces:
                pieces.setdefault(piece.sequence, []).append((piece.begin, piece.end))
                assert piece.is_last == (piece.end == requests[piece.sequence][0])
            chosen = [piece.sequence for piece in step.pieces if piece.is_last]
        else:
            assert set(step.sequences) == set(running), "a token of every sequence"
            chosen = list(step.sequences)
        for number in chosen:
            running[number] -= 1
            if running[number] == 0:
                del running[number]
                scheduler.end(number)


REQUESTS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 5), st.integers(1, 4)), max_size=12)


@settings(deadline=None)
@given(requests=REQUESTS, sequences=st.integers(1, 5), pages=st.integers(4, 9))
def test_everything_is_computed_within_the_limits(
    requests: list[tuple[int, int, int]], sequences: int, pages: int
) -> None:
    pieces, _ = drive(requests, sequences=sequences, pages=pages)
    for number, (prompt, _, _) in enumerate(requests):
        begins = range(0, prompt, CHUNK)
        assert pieces[number] == [(begin, min(begin + CHUNK, prompt)) for begin in begins]


def test_short_prompts_share_a_chunk_and_tokens_of_all_share_a_step() -> None:
    _, steps = drive([(3, 2, 1), (5, 3, 1), (1, 1, 1)], sequences=3, pages=9)
    first = Prefill(
        pieces=(
            Piece(sequence=0, begin=0, end=3, is_last=True),
            Piece(sequence=1, begin=0, end=5, is_last=True),
        )
    )
    last = Prefill(pieces=(Piece(sequence=2, begin=0, end=1, is_last=True),))
    assert steps == [first, last, Decode(sequences=(0, 1)), Decode(sequences=(1,))]
