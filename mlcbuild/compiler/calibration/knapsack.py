"""One option for each item, so that costs together keep to a budget and errors together are least.

It is the multiple-choice knapsack problem (H. Kellerer, U. Pferschy, D. Pisinger, Knapsack Problems, 2004, chapter 11).
Costs are counted in units: the greatest that divides all differences of an item's costs, so that nothing is rounded, if
the budget has no more than `MOST_UNITS` of them. Otherwise the unit is a part of the budget, and costs are rounded up:
the budget holds, and a better choice may be missed. How far the choice is from the best is told by a lower bound, of
the problem's linear relaxation by Lagrange.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST_UNITS = 1 << 16
_BISECTIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    cost: int
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`options` has the place of each item's. No choice within the budget has an error below `lower_bound`."""

    options: tuple[int, ...]
    cost: int
    error: float
    lower_bound: float


def least_cost(items: Sequence[Sequence[Option]]) -> int:
    """What all items cost at least."""
    return sum(min(option.cost for option in item) for item in items)


def choose(items: Sequence[Sequence[Option]], budget: int) -> Choice:
    """The choice with the least error, of equal ones one that costs less. Equal arguments give an equal choice on every
    machine. Raises ValueError for a budget below `least_cost`."""
    base = [min(option.cost for option in item) for item in items]
    left = budget - sum(base)
    if left < 0:
        raise ValueError(f"a budget of {budget} is below {sum(base)}, the least cost")
    most = sum(max(option.cost for option in item) for item in items) - sum(base)
    left = min(left, most)
    unit = math.gcd(*(option.cost - low for item, low in zip(items, base, strict=True) for option in item)) or 1
    unit = max(unit, -(-left // MOST_UNITS))
    places = left // unit + 1
    best = np.zeros(places)
    taken = []
    for item, low in zip(items, base, strict=True):
        errors = np.full((len(item), places), np.inf)
        for number, option in enumerate(item):
            step = -(-(option.cost - low) // unit)
            if step < places:
                errors[number, step:] = best[: places - step] + option.error
        taken.append(errors.argmin(axis=0))
        best = errors.min(axis=0)
    at = int(best.argmin())  # the first place of the least error: what costs less
    chosen = []
    for number in reversed(range(len(items))):
        place = int(taken[number][at])
        chosen.append(place)
        at -= -(-(items[number][place].cost - base[number]) // unit)
    options = tuple(reversed(chosen))
    picked = [item[place] for item, place in zip(items, options, strict=True)]
    error = math.fsum(option.error for option in picked)
    return Choice(
        options=options,
        cost=sum(option.cost for option in picked),
        error=error,
        lower_bound=min(error, _lower_bound(items, budget)),
    )


def _lower_bound(items: Sequence[Sequence[Option]], budget: int) -> float:
    """The greatest min Σ (error + price · cost) - price · budget that is found, over prices of a unit of cost."""

    def relaxed(price: float) -> tuple[float, int]:
        picked = [min(item, key=lambda option: (option.error + price * option.cost, option.cost)) for item in items]
        cost = sum(option.cost for option in picked)
        return math.fsum(option.error for option in picked) + price * (cost - budget), cost

    value, cost = relaxed(0.0)
    if cost <= budget:
        return value
    low, high = 0.0, 1e-12
    while relaxed(high)[1] > budget and high < 1e12:
        high *= 4
    best = max(value, relaxed(high)[0])
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        value, cost = relaxed(middle)
        best = max(best, value)
        low, high = (middle, high) if cost > budget else (low, middle)
    return best
