"""Which matrices AWQ's search has to look at together.

Scales of an input are searched by all matrices that read it, and groups of a matrix are clipped after its rows are
divided by the scales that it absorbs. So matrices belong together that share an input, and a matrix that absorbs an
input's scales belongs to those that read it: of a llama's layer, attention is one group and the feed-forward another.
Vectors that absorb scales, such as a norm's weight, join nothing: they are not rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlcbuild.compiler.calibration.statistics import ObservedInput
from mlcbuild.compiler.models.checkpoints.parameters import ParameterList
from mlcbuild.compiler.models.parameter_role import ParameterRole


def search_groups(listed: ParameterList, inputs: Iterable[ObservedInput]) -> list[tuple[ObservedInput, ...]]:
    """The inputs that were observed, in groups in the order of their first ones."""
    vectors = {parameter.name for parameter in listed.parameters if parameter.role is ParameterRole.VECTOR}
    observed = tuple(inputs)
    sets = _DisjointSets()
    for one in observed:
        sets.join(one.matrices)
    for smoothed in listed.smoothed:
        absorbers = [absorber.parameter for absorber in smoothed.absorbed_by if absorber.parameter not in vectors]
        sets.join([*smoothed.matrices, *absorbers])
    groups: dict[str, list[ObservedInput]] = {}
    for one in observed:
        groups.setdefault(sets.representative(one.matrices[0]), []).append(one)
    return [tuple(group) for group in groups.values()]


class _DisjointSets:
    """Sets of names, each of which has a representative."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def representative(self, name: str) -> str:
        while (parent := self._parents.setdefault(name, name)) != name:
            self._parents[name] = name = self._parents.setdefault(parent, parent)
        return name

    def join(self, names: Sequence[str]) -> None:
        first = self.representative(names[0])
        for name in names[1:]:
            self._parents[self.representative(name)] = first
