"""Query expressions: the grammar, and the parser, whose errors point at the place.

The language is the part of Bazel's that fits static targets (https://bazel.build/query/language)::

    expression = operand { ("+" | "union" | "-" | "except" | "^" | "intersect") operand }
    operand    = pattern | "(" expression ")" | "set" "(" { pattern } ")" | function "(" arguments ")"

Operators have one precedence and group from the left. A word holds letters, digits and `*/@.-_:$~[]`, and does not
begin with `-` or `*`; anything else is written in quotes.
"""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mlcbuild.errors import UsageError
from mlcbuild.suggestions import known_values

_TOKEN = re.compile(
    r"""\s*(?:(?P<word>[A-Za-z0-9/@._:$~\[\]][A-Za-z0-9*/@.\-_:$~\[\]]*)"""
    r"""|(?P<quoted>"[^"]*"|'[^']*')|(?P<symbol>[()+^,\-])|(?P<end>\Z))"""
)
_DEEPEST = 100
_MOST_DIGITS = 18  # of a depth; Python refuses to read thousands


class Operator(enum.Enum):
    """An operation on two sets."""

    UNION = "+"
    EXCEPT = "-"
    INTERSECT = "^"


_OPERATORS = {
    **{operator.value: operator for operator in Operator},
    "union": Operator.UNION,
    "except": Operator.EXCEPT,
    "intersect": Operator.INTERSECT,
}


class ParameterKind(enum.Enum):
    """The kind of a function's argument."""

    EXPRESSION = "expression"
    WORD = "word"
    REGEX = "regular expression"
    INTEGER = "depth"


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function of the language. The last `optional` parameters may be omitted."""

    name: str
    parameters: tuple[ParameterKind, ...]
    doc: str
    optional: int = 0


FUNCTIONS: tuple[Function, ...] = (
    Function(
        name="deps",
        parameters=(ParameterKind.EXPRESSION, ParameterKind.INTEGER),
        optional=1,
        doc="deps(x), deps(x, depth): x and its dependencies, or those at most `depth` steps away.",
    ),
    Function(
        name="rdeps",
        parameters=(ParameterKind.EXPRESSION, ParameterKind.EXPRESSION, ParameterKind.INTEGER),
        optional=1,
        doc="rdeps(universe, x), rdeps(universe, x, depth): x and the targets of the universe that depend on it.",
    ),
    Function(
        name="allpaths",
        parameters=(ParameterKind.EXPRESSION, ParameterKind.EXPRESSION),
        doc="allpaths(a, b): every target on a path from a to b.",
    ),
    Function(
        name="somepath",
        parameters=(ParameterKind.EXPRESSION, ParameterKind.EXPRESSION),
        doc="somepath(a, b): the targets on one shortest path from a to b, in order.",
    ),
    Function(
        name="kind",
        parameters=(ParameterKind.REGEX, ParameterKind.EXPRESSION),
        doc='kind(regex, x): the targets of x whose kind ("model_library rule") matches.',
    ),
    Function(
        name="attr",
        parameters=(ParameterKind.WORD, ParameterKind.REGEX, ParameterKind.EXPRESSION),
        doc="attr(name, regex, x): the targets of x whose attribute's value matches.",
    ),
    Function(
        name="filter",
        parameters=(ParameterKind.REGEX, ParameterKind.EXPRESSION),
        doc="filter(regex, x): the targets of x whose label matches.",
    ),
)
"""The functions of the language. Regular expressions are Python's, and match anywhere unless anchored."""

ACTION_FUNCTIONS: tuple[Function, ...] = tuple(
    Function(name=name, parameters=(ParameterKind.REGEX, ParameterKind.EXPRESSION), doc=f"{name}(regex, x): {doc}")
    for name, doc in (
        ("mnemonic", "the actions of x whose mnemonic matches."),
        ("inputs", "the actions of x with an input whose path or maker matches."),
        ("outputs", "the actions of x with an output whose path matches."),
    )
)
"""The functions of `aquery` beside those. They are outermost: what they are applied to are actions, not targets."""

_FUNCTIONS = {function.name: function for function in FUNCTIONS}


@dataclass(frozen=True, kw_only=True)
class PatternNode:
    """The targets of patterns; `set(…)` has several."""

    patterns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OperationNode:
    """`first` and the operations on it, from the left. A long chain is one node, not nested ones."""

    first: Node
    steps: tuple[tuple[Operator, Node], ...]


@dataclass(frozen=True, kw_only=True)
class CallNode:
    """A function and its arguments: nodes, words, compiled regular expressions, depths."""

    function: Function
    arguments: tuple[Node | str | re.Pattern[str] | int, ...]


Node = PatternNode | OperationNode | CallNode


@dataclass(frozen=True, kw_only=True)
class Query:
    """A parsed query. `patterns` are all its patterns; their packages must be loaded to evaluate it."""

    text: str
    root: Node
    patterns: tuple[str, ...]


def parse_query(text: str) -> Query:
    """Parse a query. Raises UsageError that points at the place of the error."""
    parser = _Parser(text, _FUNCTIONS)
    root = parser.parse()
    return Query(text=text, root=root, patterns=tuple(dict.fromkeys(parser.patterns)))


def parse_action_query(text: str) -> tuple[Query, tuple[tuple[str, re.Pattern[str]], ...]]:
    """Parse a query for actions: that for their targets, and the filters of the actions, each a function's name and its
    regular expression. Raises UsageError.
    """
    names = {function.name: function for function in ACTION_FUNCTIONS}
    parser = _Parser(text, {**_FUNCTIONS, **names})
    root, filters = parser.parse(), []
    while isinstance(root, CallNode) and root.function.name in names:
        regex, inner = root.arguments
        assert isinstance(regex, re.Pattern)
        assert isinstance(inner, PatternNode | OperationNode | CallNode)
        filters.append((root.function.name, regex))
        root = inner
    if nested := next(_nested(root, frozenset(names)), None):
        raise UsageError(
            f"in the query: {nested}(…) stands inside another function or operation",
            advice=(f'it selects actions: write it around the whole, "{nested}(regex, deps(x))"',),
        )
    return Query(text=text, root=root, patterns=tuple(dict.fromkeys(parser.patterns))), tuple(filters)


def _nested(node: Node, names: frozenset[str]) -> Iterator[str]:
    """The functions of these names in an expression."""
    if isinstance(node, OperationNode):
        for operand in (node.first, *(operand for _, operand in node.steps)):
            yield from _nested(operand, names)
    elif isinstance(node, CallNode):
        if node.function.name in names:
            yield node.function.name
        for argument in node.arguments:
            if isinstance(argument, PatternNode | OperationNode | CallNode):
                yield from _nested(argument, names)


@dataclass(frozen=True, kw_only=True)
class _Token:
    kind: str  # "word", "quoted", "symbol" or "end"
    text: str
    position: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else f'"{self.text}"'


class _Parser:
    """A recursive-descent parser with one token of look-ahead."""

    def __init__(self, text: str, functions: Mapping[str, Function]) -> None:
        self._text = text
        self._functions = functions
        self._tokens = self._tokenize()
        self._index = 0
        self._depth = 0
        self.patterns: list[str] = []

    def parse(self) -> Node:
        node = self._expression()
        token = self._token
        if token.kind != "end":
            raise self._error(f"unexpected {token}", token.position)
        return node

    @property
    def _token(self) -> _Token:
        return self._tokens[self._index]

    def _tokenize(self) -> list[_Token]:
        tokens: list[_Token] = []
        position = 0
        while not tokens or tokens[-1].kind != "end":
            match = _TOKEN.match(self._text, position)
            if match is None or match.lastgroup is None:
                start = position + len(self._text[position:]) - len(self._text[position:].lstrip())
                character = self._text[start]
                if character in "\"'":
                    raise self._error("a quote is not closed", start)
                advice = ("put patterns with such characters in quotes",) if character != "*" else ()
                raise self._error(f'"{character}" is not expected here', start, *advice)
            kind = match.lastgroup
            found = match[kind]
            tokens.append(
                _Token(kind=kind, text=found[1:-1] if kind == "quoted" else found, position=match.start(kind))
            )
            position = match.end()
        return tokens

    def _take(self) -> _Token:
        token = self._token
        self._index += 1
        return token

    def _expect(self, symbol: str, purpose: str) -> None:
        token = self._token
        if token.kind != "symbol" or token.text != symbol:
            raise self._error(f'expected "{symbol}" {purpose}, not {token}', token.position)
        self._index += 1

    def _expression(self) -> Node:
        first = self._operand()
        steps = []
        while self._token.kind in ("word", "symbol") and self._token.text in _OPERATORS:
            operator = _OPERATORS[self._take().text]
            steps.append((operator, self._operand()))
        return OperationNode(first=first, steps=tuple(steps)) if steps else first

    def _operand(self) -> Node:
        token = self._take()
        if token.kind == "quoted":
            return self._pattern(token)
        if token.kind == "word" and token.text not in _OPERATORS:
            following = self._token
            if following.kind == "symbol" and following.text == "(":
                return self._set() if token.text == "set" else self._call(token)
            return self._pattern(token)
        if token.kind == "symbol" and token.text == "(":
            self._depth += 1
            if self._depth > _DEEPEST:
                raise self._error(f"more than {_DEEPEST} nested parentheses", token.position)
            node = self._expression()
            self._expect(")", "to close the parenthesis")
            self._depth -= 1
            return node
        raise self._error(f"expected a pattern, a function or a parenthesis, not {token}", token.position)

    def _pattern(self, token: _Token) -> PatternNode:
        if not token.text:
            raise self._error("a pattern is empty", token.position)
        if token.text.startswith("-"):
            raise self._error(
                "a pattern in a query cannot begin with -", token.position, 'to exclude targets, write "x - y"'
            )
        self.patterns.append(token.text)
        return PatternNode(patterns=(token.text,))

    def _set(self) -> Node:
        self._expect("(", "after set")
        patterns: list[str] = []
        while self._token.kind in ("word", "quoted"):
            patterns.extend(self._pattern(self._take()).patterns)
        self._expect(")", "to close set(")
        return PatternNode(patterns=tuple(patterns))

    def _call(self, name: _Token) -> Node:
        function = self._functions.get(name.text)
        if function is None:
            raise self._error(
                f'unknown function "{name.text}"', name.position, known_values(name.text, [*self._functions, "set"])
            )
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"more than {_DEEPEST} nested parentheses", name.position)
        self._expect("(", f"after {function.name}")
        arguments: list[Node | str | re.Pattern[str] | int] = []
        for index, kind in enumerate(function.parameters):
            if index:
                token = self._token
                if token.text == ")" and index >= len(function.parameters) - function.optional:
                    break
                self._expect(",", f"and another argument of {function.name}")
            arguments.append(self._argument(function, kind))
        self._expect(")", f"to close {function.name}(")
        self._depth -= 1
        return CallNode(function=function, arguments=tuple(arguments))

    def _argument(self, function: Function, kind: ParameterKind) -> Node | str | re.Pattern[str] | int:
        if kind is ParameterKind.EXPRESSION:
            return self._expression()
        token = self._take()
        if token.kind not in ("word", "quoted"):
            raise self._error(f"expected a {kind.value} for {function.name}, not {token}", token.position, function.doc)
        if kind is ParameterKind.REGEX:
            try:
                return re.compile(token.text)
            except re.error as error:
                raise self._error(f'bad regular expression "{token.text}": {error.msg}', token.position) from None
            except (RecursionError, OverflowError) as error:
                raise self._error(f"bad regular expression: {error}", token.position) from None
        if kind is ParameterKind.INTEGER:
            if not (token.text.isascii() and token.text.isdigit()):
                raise self._error(f"a depth must be a number of steps, not {token}", token.position)
            return int(token.text) if len(token.text) < _MOST_DIGITS else sys.maxsize
        return token.text

    def _error(self, message: str, position: int, *advice: str) -> UsageError:
        """An error with the line of the query and a mark at the place."""
        before = self._text[:position]
        start = before.rfind("\n") + 1
        line = self._text[start:].partition("\n")[0].replace("\t", " ")
        column = position - start
        where = f"line {before.count(chr(10)) + 1}, column" if "\n" in self._text else "column"
        hints = tuple(hint for hint in advice if hint)
        return UsageError(f"in the query, {where} {column + 1}: {message}", advice=(line, " " * column + "^", *hints))
