"""Layers that repeat (`models.description.Layers`): a module shows the first one of each kind, and the last.

The first of a kind stands for every layer of it but the model's last. What the phases do to a model then costs the same
however many layers it has; Lower puts in the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mlcbuild.compiler.models.description import Layers
from mlcbuild.errors import StageError


def shown_layers(layers: Layers) -> tuple[int, ...]:
    """The numbers of the layers that a module shows, in their order."""
    firsts = {layers.kind(number): number for number in reversed(range(layers.count))}
    return tuple(sorted({*firsts.values(), *range(layers.count)[-1:]}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """What a module shows of a model: `names` are those of all parameters, in their order."""

    names: tuple[str, ...]
    layers: Layers
    shown: tuple[int, ...]  # numbers of layers

    @staticmethod
    def of(names: Sequence[str], layers: Layers) -> Repetition:
        """The repetition in the names of all parameters. Raises StageError for layers that are not one after another,
        not as many as `layers` says, or of one kind and not alike."""
        shown = shown_layers(layers)
        found = Repetition(names=tuple(names), layers=layers, shown=shown)
        numbers = [_number(name, layers) for name in names]
        inside = [name for name, number in zip(names, numbers, strict=True) if number is not None]
        alike = {
            number: [name for name, other in zip(names, numbers, strict=True) if other == number] for number in shown
        }
        expected = [
            _renamed(name, number, layers)
            for number in range(layers.count)
            for name in alike[shown[found.stand_in(number)]]
        ]
        before = names.index(inside[0]) if inside else 0
        if inside != expected or list(names[before : before + len(inside)]) != expected:
            raise StageError("the parameters of the model's layers are not alike, or not in the layers' order")
        return found

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that a module has, in its order, each by the number of its own layer."""
        numbers = ((name, _number(name, self.layers)) for name in self.names)
        return tuple(name for name, number in numbers if number is None or number in self.shown)

    def stand_in(self, number: int) -> int:
        """Which of the shown layers stands for a layer."""
        if number == self.layers.count - 1:
            return len(self.shown) - 1
        kinds = [self.layers.kind(each) for each in self.shown]
        return kinds.index(self.layers.kind(number))

    def layer(self, name: str) -> int | None:
        """Which of the shown layers a parameter of these belongs to."""
        number = _number(name, self.layers)
        return None if number is None else self.shown.index(number)

    def in_layer(self, name: str, number: int) -> str:
        """The name that a parameter of a layer has in the layer of another number."""
        return _renamed(name, number, self.layers)

    def shown_like(self, name: str) -> str:
        """The parameter of those shown that has the type of a parameter."""
        number = _number(name, self.layers)
        return name if number is None else self.in_layer(name, self.shown[self.stand_in(number)])


def repeated_names(shown: Sequence[str], layers: Layers) -> list[str]:
    """The names of all parameters of a model, from those of a module, whose layers are numbered from 0."""
    repetition = Repetition(names=(), layers=layers, shown=shown_layers(layers))
    numbers = [_number(name, layers) for name in shown]
    of_layer = [
        [name for name, other in zip(shown, numbers, strict=True) if other == place]
        for place in range(len(repetition.shown))
    ]
    inside = [
        _renamed(name, number, layers)
        for number in range(layers.count)
        for name in of_layer[repetition.stand_in(number)]
    ]
    before = next((place for place, number in enumerate(numbers) if number is not None), len(shown))
    outside = [(place, name) for place, name in enumerate(shown) if numbers[place] is None]
    first = [name for place, name in outside if place < before]
    return [*first, *inside, *(name for place, name in outside if place > before)]


def _number(name: str, layers: Layers) -> int | None:
    found = re.match(rf"{re.escape(layers.name)}\.(\d+)\.", name)
    return None if found is None else int(found[1])


def _renamed(name: str, number: int, layers: Layers) -> str:
    rest = name.removeprefix(f"{layers.name}.").partition(".")[2]
    return f"{layers.name}.{number}.{rest}"
