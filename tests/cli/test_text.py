"""Seconds, counts and widths of text."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.cli.output import text
from mlcbuild.cli.output.terminal import wrapping_width


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


@given(
    st.lists(st.sampled_from(["a", "of", "//models:llama", "`mlcbuild log`", "模型", "x" * 25]), min_size=1),
    st.sampled_from(["", "  ", "    "]),
    st.integers(20, 60),
)
def test_wrapped_lines_have_all_words_and_fit_unless_a_word_does_not(words: list[str], margin: str, width: int) -> None:
    line = margin + " ".join(words)
    lines = list(text.wrapped([line], width))
    assert " ".join(each.strip() for each in lines) == line.strip()
    assert all(text.cell_width(each) <= width or len(each.split()) == 1 for each in lines)
    assert all(each.startswith(f"{margin}    ") for each in lines[1:])
    assert list(text.wrapped([line], 0)) == [line]


def test_a_command_in_backquotes_is_not_broken_and_colour_takes_no_room() -> None:
    told = "error: give one of them, or see `mlcbuild help remote-settings` for more"
    assert list(text.wrapped([told], 40)) == [
        "error: give one of them, or see",
        "    `mlcbuild help remote-settings` for",
        "    more",
    ]
    painted = [line.replace("error:", "\x1b[1;31merror:\x1b[0m") for line in (told, *text.wrapped([told], 40))]
    assert list(text.wrapped(painted[:1], 40)) == painted[1:]


def test_logs_and_what_is_verbatim_are_not_wrapped() -> None:
    lines = ["  │ " + "word " * 10, "+" + "word " * 10]
    assert list(text.wrapped(lines, 20, verbatim=lines[1:])) == lines
    assert len(list(text.wrapped(lines, 20))) > 2


@pytest.mark.parametrize(("told", "width"), [("80", 80), ("0", 0), ("", 0), ("wide", 0), ("-3", 0)])
def test_only_a_terminal_or_a_variable_has_a_width(told: str, width: int) -> None:
    assert wrapping_width(io.StringIO(), {"COLUMNS": told}) == width


def test_wide_characters_take_two_columns() -> None:
    assert text.cell_width("模型 a") == 6
    assert text.cell_width("e\u0301") == 1


def test_a_log_cannot_drive_the_terminal() -> None:
    assert text.printable("a\x1b[2Jb\tc\nd\x07") == "a\\x1b[2Jb\tc\nd\\x07"
