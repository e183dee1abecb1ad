"""The parser of queries, and the places of its errors."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.errors import UsageError
from mlcbuild.query.expression import CallNode, OperationNode, Operator, PatternNode, parse_query


def pattern(text: str) -> PatternNode:
    return PatternNode(patterns=(text,))


def test_operators_group_from_the_left_with_one_precedence() -> None:
    expected = OperationNode(
        first=pattern("//a"),
        steps=(
            (Operator.UNION, pattern("//b")),
            (Operator.INTERSECT, pattern("//c")),
            (Operator.EXCEPT, pattern(":d")),
        ),
    )
    assert parse_query("//a + //b ^ //c - :d").root == expected
    assert parse_query("//a union //b intersect //c except :d").root == expected
    assert parse_query(" ( //a+//b)^//c -:d\n").root == OperationNode(
        first=OperationNode(first=pattern("//a"), steps=((Operator.UNION, pattern("//b")),)), steps=expected.steps[1:]
    )


def test_hyphen_inside_a_word_is_part_of_it() -> None:
    assert parse_query("//a:b-c").root == pattern("//a:b-c")
    assert parse_query("'//a:b+c' - \"x y\"").patterns == ("//a:b+c", "x y")


def test_patterns_are_all_that_must_be_loaded() -> None:
    query = parse_query(
        "deps(//a/..., 2) + rdeps(set(//u:x :y), kind('rule', z)) ^ attr(deps, '//w', somepath(//a/..., :k))"
    )
    assert query.patterns == ("//a/...", "//u:x", ":y", "z", ":k")


def test_name_of_a_function_alone_is_a_pattern() -> None:
    assert parse_query("deps").root == pattern("deps")
    assert isinstance(parse_query("deps (deps)").root, CallNode)


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("", 1, "expected a pattern, a function or a parenthesis, not the end"),
        ("//a +", 6, "expected a pattern, a function or a parenthesis, not the end"),
        ("//a //b", 5, 'unexpected "//b"'),
        ("(//a", 5, 'expected ")" to close the parenthesis, not the end'),
        ("//a)", 4, 'unexpected ")"'),
        ("deps(//a", 9, 'expected "," and another argument of deps, not the end'),
        ("deps()", 6, 'expected a pattern, a function or a parenthesis, not ")"'),
        ("deps(//a, b)", 11, 'a depth must be a number of steps, not "b"'),
        ("deps(//a, 1, 2)", 12, 'expected ")" to close deps(, not ","'),
        ("rdeps(//a)", 10, 'expected "," and another argument of rdeps, not ")"'),
        ("kind('(', //a)", 6, 'bad regular expression "("'),
        (f"kind('{'(' * 5000}a{')' * 5000}', //a)", 6, "bad regular expression: maximum recursion depth exceeded"),
        ("kind('a{99999999999}', //a)", 6, "bad regular expression"),
        ("filter(//a", 11, 'expected "," and another argument of filter'),
        ("kin('x', //a)", 1, 'unknown function "kin"'),
        ("'//a", 1, "a quote is not closed"),
        ("''", 1, "a pattern is empty"),
        ("//a & //b", 5, '"&" is not expected here'),
        ("*", 1, '"*" is not expected here'),
        ("'-//a'", 1, "a pattern in a query cannot begin with -"),
        ("set(//a + //b)", 9, 'expected ")" to close set(, not "+"'),
        ("union", 1, 'expected a pattern, a function or a parenthesis, not "union"'),
    ],
)
def test_an_error_is_shown_at_its_place(text: str, column: int, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_query(text)
    message, line, caret, *_ = str(caught.value).split("\n")
    assert message.startswith(f"in the query, column {column}: {reason}")
    assert line == f"  {text}"
    assert caret.index("^") == 2 + column - 1


def test_an_error_in_a_later_line_shows_that_line() -> None:
    with pytest.raises(UsageError) as caught:
        parse_query("//a +\n  dps(//b)")
    assert str(caught.value) == (
        'in the query, line 2, column 3: unknown function "dps"\n    dps(//b)\n    ^\n'
        '  known: deps, rdeps, allpaths, somepath, kind, attr, filter, set        did you mean "deps"?'
    )


def test_nesting_is_limited_and_chains_are_not() -> None:
    with pytest.raises(UsageError, match="nested parentheses"):
        parse_query("(" * 5000 + "//a" + ")" * 5000)
    assert len(parse_query(" + ".join(["//a"] * 20_000)).patterns) == 1


@given(st.text("ab/:.-+^(),'\" 1\n*&$setdps", max_size=30))
def test_any_text_parses_or_is_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        parse_query(text)


def test_a_depth_of_thousands_of_digits_is_a_depth() -> None:
    root = parse_query(f"deps(//a, {'9' * 5000})").root
    assert isinstance(root, CallNode)
    assert isinstance(root.arguments[1], int)
