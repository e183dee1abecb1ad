"""Text ends before a stop string, whatever the pieces it comes in."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.runtime.stop_strings import TextUntilStop

LETTERS = st.text(alphabet="ab", max_size=12)


def shown(stops: list[str], pieces: list[str]) -> tuple[list[str], bool]:
    until = TextUntilStop(stops)
    told = [until.add(piece) for piece in pieces]
    return [*told, until.finish()], until.stopped


def test_what_may_become_a_stop_string_is_held_back() -> None:
    assert shown(["\nUser:"], ["yes", "\nUs", "ed"]) == (["yes", "", "\nUsed", ""], False)
    assert shown(["\nUser:"], ["yes\n", "User", ": no"]) == (["yes", "", "", ""], True)
    assert shown(["<end>"], ["a<en"]) == (["a", "<en"], False)


def test_nothing_is_shown_after_a_stop_string() -> None:
    assert shown(["x"], ["axb", "c"]) == (["a", "", ""], True)


def test_the_longest_of_two_that_end_together_is_cut() -> None:
    assert shown(["b", "ab"], ["c", "a", "b"])[0][0] == "c"
    assert "".join(shown(["b", "ab"], ["cab"])[0]) == "c"


@settings(deadline=None)
@given(stops=st.lists(LETTERS.filter(bool), max_size=3), text=LETTERS, cuts=st.lists(st.integers(0, 12), max_size=4))
def test_pieces_do_not_matter(stops: list[str], text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut <= len(text))})
    pieces = [text[begin:end] for begin, end in itertools.pairwise(places)]
    told, stopped = shown(stops, pieces)
    # Letter by letter: the first that is complete ends the text.
    expected, ended = text, False
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            expected, ended = text[: end - max(map(len, found))], True
            break
    assert ("".join(told), stopped) == (expected, ended)
