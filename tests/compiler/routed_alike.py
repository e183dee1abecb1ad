"""Two libraries of one mixture of experts, of which the second uses the experts that the first has chosen.

A router's choice is not continuous: where two experts are about as good, a number that is off by however little has
another one chosen, and from there on two computations that are both right have nothing in common. So the second
library is given the ranks of experts that the first one's router found, call by call; its own scores still weigh them.
All tokens can then be compared, and it is counted how often the second would have chosen others.

TVM's virtual machine tells a function of every kernel that it calls. The kernel that ranks takes scores (tokens, n) in
float32, and writes ranks (tokens, n) in int32; of a model whose experts are in groups, there is one for the groups too.
Behind it, the kernel that reads the chosen experts off takes ranks, and writes (tokens, chosen).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.compiler.running import Array, Library


@dataclass(kw_only=True)
class Routing:
    """The ranks that routers find, call by call, and how many of the best are `chosen`. Of groups, of which as many
    are chosen as `groups` says, no kernel tells how many."""

    groups: int = 0
    ranks: list[Array] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)

    def record(self, library: Library) -> None:
        """Keep what this library's routers find from now on."""

        def kept(_function: Any, _name: str, before: bool, _result: Any, *arguments: Any) -> int:
            if not before and (found := _ranks(arguments)) is not None:
                self.ranks.append(found.numpy().copy())
                self.chosen.append(self.groups)
            elif not before and self.ranks and (count := _chosen(arguments, self.ranks[-1])):
                self.chosen[-1] = count
            return 0

        library.machine.set_instrument(kept)

    def impose(self, library: Library) -> list[int]:
        """Have this library's routers find the same. The list has, call by call, for how many tokens they would have
        chosen others."""
        others: list[int] = []

        def replaced(_function: Any, _name: str, before: bool, _result: Any, *arguments: Any) -> int:
            if not before and (found := _ranks(arguments)) is not None:
                wanted, count = self.ranks[len(others)], self.chosen[len(others)]
                differ = (found.numpy() < count) != (wanted < count)
                others.append(int(differ.any(axis=1).sum()))
                found.copyfrom(wanted)
            return 0

        library.machine.set_instrument(replaced)
        return others


def _ranks(arguments: tuple[Any, ...]) -> Any | None:
    """What a kernel that ranks has written, if it is one."""
    match [one for one in arguments if hasattr(one, "dtype")]:
        case [scores, ranks] if _is(scores, "float32") and _is(ranks, "int32") and scores.shape == ranks.shape:
            return ranks
    return None


def _chosen(arguments: tuple[Any, ...], ranks: Array) -> int:
    """How many experts a kernel reads off the ranks, if it does."""
    match [one for one in arguments if hasattr(one, "dtype")]:
        case [given, best] if _is(given, "int32") and _is(best, "int32") and tuple(given.shape) == ranks.shape:
            return int(best.shape[1]) if np.array_equal(given.numpy(), ranks) else 0
    return 0


def _is(tensor: Any, dtype: str) -> bool:
    return str(tensor.dtype) == dtype and len(tensor.shape) == 2
