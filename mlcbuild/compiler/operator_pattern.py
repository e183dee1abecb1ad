"""Operators of a graph, and sizes of its tensors, as somebody declares them: what a kernel of theirs stands for.

A pattern is written as a graph is shown (`mlcbuild show TARGET Phase0 --ir`), without `R.`: an operator's name, its
arguments, and all its attributes by name. Names that are not called are tensors.

    multiply(nn.silu(gate), up)
    split(x, indices_or_sections=2, axis=-1)[0]

`tir.NAME(…)` is a call of a kernel of the graph, with or without the number behind its name. An expression is made of
numbers, constants of the kernel, `x.shape[0]`, `size(x)`, `cdiv(a, b)`, `+`, `-`, `*` and `//`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Value = None | bool | int | float | str | tuple["Value", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPattern:
    """Any tensor; the same name is the same tensor."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPattern:
    """A call of an operator with exactly these attributes; with `of_kernel`, of a kernel of that name."""

    name: str
    arguments: tuple[Pattern, ...]
    attributes: tuple[tuple[str, Value], ...] = ()
    of_kernel: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPattern:
    """One of the results of an operator that has several."""

    of: OperatorPattern
    place: int


Pattern = TensorPattern | OperatorPattern | PartPattern


def parse_pattern(text: str) -> OperatorPattern | PartPattern:
    """The pattern that `text` is. Raises ValueError, with a reason, for what is none."""
    parsed = _pattern(_parsed(text))
    if isinstance(parsed, TensorPattern):
        raise ValueError(f'"{text}" calls no operator')
    return parsed


def tensors_of(pattern: Pattern) -> tuple[str, ...]:
    """The names of its tensors, each once, in the order in which they are written."""
    return tuple(dict.fromkeys(_tensors(pattern)))


def _tensors(pattern: Pattern) -> Iterator[str]:
    match pattern:
        case TensorPattern(name=name):
            yield name
        case PartPattern(of=of):
            yield from _tensors(of)
        case OperatorPattern(arguments=arguments):
            for argument in arguments:
                yield from _tensors(argument)


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f'"{text}" cannot be read: {error.msg}') from None


def _pattern(node: ast.expr) -> Pattern:
    match node:
        case ast.Name(id=name):
            return TensorPattern(name=name)
        case ast.Subscript(value=value, slice=ast.Constant(value=int(place))):
            of = _pattern(value)
            if not isinstance(of, OperatorPattern):
                raise ValueError(f'"{ast.unparse(node)}" is no result of an operator')
            return PartPattern(of=of, place=place)
        case ast.Call(func=function, args=arguments, keywords=keywords):
            name = ast.unparse(function)
            if not all(part.isidentifier() for part in name.split(".")):
                raise ValueError(f'"{name}" is no operator')
            of_kernel = name.startswith("tir.")
            return OperatorPattern(
                name=name.removeprefix("tir."),
                arguments=tuple(_pattern(argument) for argument in arguments),
                attributes=tuple(sorted((str(each.arg), _value(each.value)) for each in keywords)),
                of_kernel=of_kernel,
            )
    raise ValueError(f'"{ast.unparse(node)}" is neither a tensor nor a call of an operator')


def _value(node: ast.expr) -> Value:
    try:
        return frozen(ast.literal_eval(node))
    except ValueError:
        raise ValueError(f'"{ast.unparse(node)}" is no value of an attribute') from None


def frozen(value: Any) -> Value:
    """An attribute's value with tuples for lists."""
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What an expression is computed of: the sizes of tensors and the values of constants, in numbers of any kind."""

    shapes: Mapping[str, Sequence[Any]]
    constants: Mapping[str, Any]
    ceildiv: Callable[[Any, Any], Any] = lambda a, b: -(-a // b)

    def value(self, text: str) -> Any:
        """The value of an expression. Raises ValueError for what is none, and for names that are not known."""
        return self._value(_parsed(text))

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                return number
            case ast.Name(id=name) if name in self.constants:
                return self.constants[name]
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=place):
                shape = self._shape(name)
                index = ast.literal_eval(place)
                if not isinstance(index, int) or not -len(shape) <= index < len(shape):
                    raise ValueError(f"{name} has {len(shape)} sizes, and none at {ast.unparse(place)}")
                return shape[index]
            case ast.Call(func=ast.Name(id="size"), args=[ast.Name(id=name)], keywords=[]):
                return math.prod(self._shape(name))
            case ast.Call(func=ast.Name(id="cdiv"), args=[first, second], keywords=[]):
                return self.ceildiv(self._value(first), self._value(second))
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() as operator, right=right):
                first, second = self._value(left), self._value(right)
                match operator:
                    case ast.Add():
                        return first + second
                    case ast.Sub():
                        return first - second
                    case ast.Mult():
                        return first * second
                return first // second
        raise ValueError(f'"{ast.unparse(node)}" is no size: write x.shape[0], size(x), cdiv(a, b), +, -, * or //')

    def _shape(self, name: str) -> Sequence[Any]:
        if name not in self.shapes:
            raise ValueError(f'"{name}" is no tensor of the pattern')
        return self.shapes[name]


def check_expression(text: str, tensors: Sequence[str], constants: Sequence[str]) -> None:
    """Raise ValueError for what is no expression of these tensors and constants. Tensors have up to eight sizes."""
    Sizes(shapes=dict.fromkeys(tensors, (1,) * 8), constants=dict.fromkeys(constants, 1)).value(text)
