"""ChoosePrecision: a scheme for each matrix of a model, so that its weights keep to a budget and errors are least.

Errors are divergences of the model's predictions (`calibration.divergence`), which are added. Where one scheme alone
keeps to the budget, several are chosen only if their errors are smaller by `LEAST_GAIN`: what is measured of matrices
one by one, on a small part of a text, does not foretell what a model loses to a few percent.

Reads `measured` (of MeasureSensitivity: every shard by every candidate) and `parameters` (parameters.json). Writes
`precision` (precision.json): what was chosen, and, for people, what was measured of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcbuild.compiler.calibration.budget import parse_budget
from mlcbuild.compiler.calibration.knapsack import Choice, Option, choose, least_cost
from mlcbuild.compiler.calibration.sensitivity import MeasuredParameter, read_sensitivity
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters
from mlcbuild.compiler.quantization.mixed.precision import Precision, write_precision
from mlcbuild.errors import StageError

LEAST_GAIN = 0.1
"""The share of one scheme's errors by which those of several have to be smaller."""


def run(
    *, measured: tuple[Path, ...], parameters: Path, precision: Path, candidates: Sequence[str], budget: str
) -> None:
    """Of equal choices, that of the first candidate. Raises StageError for a budget that no choice keeps to, and for
    parameters that were not measured by each candidate."""
    listed = read_parameters(parameters)
    by_scheme: dict[str, dict[str, MeasuredParameter]] = {name: {} for name in candidates}
    for found in map(read_sensitivity, measured):
        by_scheme[found.scheme] |= {one.name: one for one in found.parameters}
    names = [parameter.name for parameter in listed.parameters]
    for scheme, found_of in by_scheme.items():
        if missing := [name for name in names if name not in found_of]:
            raise StageError(f"{missing[0]} was not measured by {scheme}")
    errors = {scheme: {name: found[name].divergence or 0.0 for name in names} for scheme, found in by_scheme.items()}
    uniform = {
        scheme: {"bytes": sum(found[name].bytes for name in names), "error": math.fsum(errors[scheme].values())}
        for scheme, found in by_scheme.items()
    }
    elements = sum(parameter.elements for parameter in listed.parameters)
    allowed = parse_budget(budget, tuple(candidates)).of(
        elements, {scheme: int(found["bytes"]) for scheme, found in uniform.items()}
    )
    items = [
        [Option(cost=by_scheme[scheme][name].bytes, error=errors[scheme][name]) for scheme in candidates]
        for name in names
    ]
    if allowed < (least := least_cost(items)):
        raise StageError(
            f"the budget of {allowed:,} bytes ({budget}) is below the {least:,} that the weights take at least",
            advice=(f"candidates are {', '.join(candidates)}: add a smaller one, or give more",),
        )
    best = choose(items, allowed)
    choice = _or_uniform(best, items, allowed)
    chosen = {name: candidates[option] for name, option in zip(names, choice.options, strict=True)}
    used = [by_scheme[scheme] for scheme in dict.fromkeys(chosen.values())]
    quantized = {name for name in names if any(found[name].quantized for found in used)}
    write_precision(
        _precision({name: scheme for name, scheme in chosen.items() if name in quantized} or chosen, candidates),
        precision,
        measured={
            **_measured(choice, allowed, elements, uniform, {name: errors[chosen[name]][name] for name in names}),
            "least_error": best.error,
        },
    )


def _or_uniform(best: Choice, items: Sequence[Sequence[Option]], budget: int) -> Choice:
    """The best choice, or that of one candidate for all matrices which is not much worse."""
    uniform = []
    for candidate in range(len(items[0])):
        options = [item[candidate] for item in items]
        found = Choice(
            options=(candidate,) * len(items),
            cost=sum(option.cost for option in options),
            error=math.fsum(option.error for option in options),
            lower_bound=best.lower_bound,
        )
        if found.cost <= budget:
            uniform.append(found)
    least = min(uniform, key=lambda found: found.error, default=None)
    return best if least is None or best.error <= (1 - LEAST_GAIN) * least.error else least


def _precision(chosen: Mapping[str, str], candidates: Sequence[str]) -> Precision:
    """The scheme that most matrices have is the default."""
    counts = Counter(chosen.values())
    default = max(candidates, key=lambda scheme: (counts[scheme], -candidates.index(scheme)))
    return Precision(
        default=default, choices=tuple((name, scheme) for name, scheme in chosen.items() if scheme != default)
    )


def _measured(
    choice: Choice,
    allowed: int,
    elements: int,
    uniform: Mapping[str, Mapping[str, float]],
    of_each: Mapping[str, float],
) -> dict[str, object]:
    return {
        "budget_bytes": allowed,
        "bytes": choice.cost,
        "bits_per_weight": choice.cost * 8 / elements,
        "error": choice.error,
        "error_lower_bound": choice.lower_bound,
        "uniform": uniform,
        "errors": {name: error for name, error in of_each.items() if error},
    }
