"""The values in a pickle, read without running it.

A pickle is a program for a stack machine; `pickle.load` lets it call anything. Here its instructions are
interpreted one by one and build plain values only: where a program names a global it becomes a `Global`,
where it calls one a `Call`, where it asks for something kept elsewhere a `Persistent`. Nothing is imported
and nothing is called.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlcbuild.errors import StageError


@dataclass(frozen=True, slots=True)
class Global:
    """A name of some module's."""

    module: str
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call that was not made."""

    function: object
    arguments: object


@dataclass(frozen=True, slots=True, eq=False)
class Persistent:
    """A reference to something outside of the pickle."""

    identifier: object


_MARK = object()
_CONSTANTS: dict[str, Callable[[], object]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
}
_LITERALS = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    )
)
_SMALL_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def pickle_values(data: bytes) -> object:
    """The value that a pickle describes. Raises StageError for a damaged one, or one that needs more than
    values."""
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return machine.pop()
            machine.step(opcode.name, argument)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise StageError(f"the pickle is damaged: {error}") from error
    raise StageError("the pickle is damaged: it has no end")


class _Machine:
    """The stack and memory of one program."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memory: dict[int, object] = {}

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value should be")
        return value

    def pop_to_mark(self) -> list[Any]:
        items: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            items.append(value)
        return items[::-1]

    def step(self, name: str, argument: Any) -> None:
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _SMALL_TUPLES:
            items = [self.pop() for _ in range(_SMALL_TUPLES[name])]
            self.stack.append(tuple(items[::-1]))
        else:
            handler = getattr(self, f"_{name.lower()}", None)
            if handler is None:
                raise StageError(
                    f"the pickle holds more than tensors: its instruction {name} is not one that values need"
                )
            handler(argument)

    def _proto(self, argument: object) -> None:
        """The protocol's version, and the size of a frame: nothing to do."""

    _frame = _proto

    def _mark(self, _: object) -> None:
        self.stack.append(_MARK)

    def _tuple(self, _: object) -> None:
        self.stack.append(tuple(self.pop_to_mark()))

    def _append(self, _: object) -> None:
        item = self.pop()
        self._list().append(item)

    def _appends(self, _: object) -> None:
        items = self.pop_to_mark()
        self._list().extend(items)

    def _setitem(self, _: object) -> None:
        value, key = self.pop(), self.pop()
        self._table()[key] = value

    def _setitems(self, _: object) -> None:
        items = self.pop_to_mark()
        table = self._table()
        for key, value in zip(items[::2], items[1::2], strict=True):
            table[key] = value

    def _global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self.stack.append(Global(module, name))

    def _stack_global(self, _: object) -> None:
        name, module = self.pop(), self.pop()
        self.stack.append(Global(str(module), str(name)))

    def _reduce(self, _: object) -> None:
        arguments, function = self.pop(), self.pop()
        # An ordered dictionary is filled by later instructions, so it has to be one already.
        if function == Global("collections", "OrderedDict") and arguments == ():
            self.stack.append({})
        else:
            self.stack.append(Call(function, arguments))

    def _build(self, _: object) -> None:
        self.pop()  # attributes, such as the versions that a state dictionary carries

    def _binpersid(self, _: object) -> None:
        self.stack.append(Persistent(self.pop()))

    def _binput(self, argument: int) -> None:
        self.memory[argument] = self.stack[-1]

    _long_binput = _binput
    _put = _binput

    def _memoize(self, _: object) -> None:
        self.memory[len(self.memory)] = self.stack[-1]

    def _binget(self, argument: int) -> None:
        self.stack.append(self.memory[argument])

    _long_binget = _binget
    _get = _binget

    def _list(self) -> list[Any]:
        if not isinstance(self.stack[-1], list):
            raise ValueError("an item for something that is no list")
        return self.stack[-1]

    def _table(self) -> dict[Any, Any]:
        if not isinstance(self.stack[-1], dict):
            raise ValueError("an entry for something that is no dictionary")
        return self.stack[-1]
