"""Seconds, counts and widths of text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.cli.output import text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0.0 s"),
        (-0.2, "0.0 s"),
        (12.44, "12.4 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.7, "1 h 00 min"),
        (3725, "1 h 02 min"),
    ],
)
def test_seconds(value: float, shown: str) -> None:
    assert text.seconds(value) == shown


def test_counts_agree_with_their_nouns() -> None:
    assert [text.plural(count, "action") for count in (0, 1, 10_000)] == ["0 actions", "1 action", "10,000 actions"]


@given(st.text(st.characters(blacklist_categories=("Cc", "Cs", "Mn", "Me", "Mc", "Cf"))), st.integers(0, 30))
def test_a_shortened_text_never_exceeds_its_width(content: str, width: int) -> None:
    assert text.cell_width(text.shortened(content, width)) <= width


def test_both_ends_of_a_shortened_name_stay() -> None:
    shown = text.shortened("//models:llama-3-70b-instruct CompileKernel", 21)
    assert shown == "//models:l…pileKernel"


def test_wide_characters_take_two_columns() -> None:
    assert text.cell_width("模型 a") == 6
    assert text.cell_width("e\u0301") == 1


def test_a_log_cannot_drive_the_terminal() -> None:
    assert text.printable("a\x1b[2Jb\tc\nd\x07") == "a\\x1b[2Jb\tc\nd\\x07"
