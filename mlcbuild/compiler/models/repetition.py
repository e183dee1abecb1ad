"""Layers that repeat (`models.description.Layers`): a module shows two of them.

The first stands for every layer but the last, the second for the last. What the phases do to a model then costs the
same however many layers it has; Lower puts in the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mlcbuild.compiler.models.description import Layers
from mlcbuild.errors import StageError

SHOWN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """Where the parameters of repeated layers are in the order of all: `before` others come first, then `count` layers
    of `width` parameters each, then `after` others."""

    before: int
    width: int
    count: int
    after: int

    @staticmethod
    def of(names: Sequence[str], layers: Layers) -> Repetition:
        """The repetition in the names of all parameters, in their order. Raises StageError for layers that are not one
        after another, not alike, or not as many as `layers` says."""
        numbers = [_number(name, layers) for name in names]
        inside = [place for place, number in enumerate(numbers) if number is not None]
        if not inside:
            return Repetition(before=len(names), width=0, count=0, after=0)
        before, count = inside[0], layers.count
        width = numbers.count(0)
        first = names[before : before + width]
        expected = [_renumbered(name, number, layers) for number in range(count) for name in first]
        if list(names[before : before + count * width]) != expected or len(inside) != count * width:
            raise StageError("the parameters of the model's layers are not alike, or not in the layers' order")
        return Repetition(before=before, width=width, count=count, after=len(names) - before - count * width)

    @property
    def shown(self) -> int:
        """How many layers a module shows."""
        return min(self.count, SHOWN)

    @property
    def length(self) -> int:
        """How many parameters a module has that shows no more."""
        return self.before + self.shown * self.width + self.after

    @property
    def further(self) -> int:
        """How many layers the last one shown stands for, itself included."""
        return self.count - self.shown + 1

    def layer(self, shown: int) -> int | None:
        """The layer that a shown parameter belongs to."""
        inside = self.before <= shown < self.before + self.shown * self.width
        return (shown - self.before) // self.width if inside else None

    def place(self, shown: int, *, further: int = 0) -> int:
        """The place among all parameters of a shown one, or of its like as many layers `further`."""
        if shown < self.before:
            return shown
        return shown + (further if self.layer(shown) is not None else self.count - self.shown) * self.width

    def stand_in(self, place: int) -> int:
        """The shown parameter that has the type of the one at a place among all."""
        behind = place - self.before
        if behind < 0 or self.width == 0:
            return place
        if behind < self.count * self.width:
            return self.before + behind % self.width
        return place - (self.count - self.shown) * self.width


def repeated_names(shown: Sequence[str], layers: Layers) -> list[str]:
    """The names of all parameters of a model, from those of one that shows fewer layers."""
    first = [name for name in shown if _number(name, layers) == 0]
    names = list[str]()
    for name in shown:
        number = _number(name, layers)
        if number is None:
            names.append(name)
        elif number == 0 and name == first[0]:
            names += [_renumbered(each, layer, layers) for layer in range(layers.count) for each in first]
    return names


def _number(name: str, layers: Layers) -> int | None:
    found = re.match(rf"{re.escape(layers.name)}\.(\d+)\.", name)
    return None if found is None else int(found[1])


def _renumbered(name: str, number: int, layers: Layers) -> str:
    rest = name.removeprefix(f"{layers.name}.").partition(".")[2]
    return f"{layers.name}.{number}.{rest}"
