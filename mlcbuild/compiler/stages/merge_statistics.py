"""MergeStatistics: the statistics of all shards of a sample become those of the sample.

Reads the folders `observed` of Observe. Writes the folder `statistics` (`calibration.statistics`). Sums are made in the
order of the shards' names, element by element, in float64; those of one input are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mlcbuild.compiler.calibration.statistics import Statistics, write_index, write_input
from mlcbuild.compiler.weights.tensor import Array
from mlcbuild.errors import StageError


def run(*, observed: Sequence[Path], statistics: Path) -> None:
    """Raises StageError for statistics that are not of one model."""
    parts = [Statistics(path) for path in sorted(observed)]
    first, *others = (part.index.inputs for part in parts)
    statistics.mkdir(parents=True, exist_ok=True)
    merged = []
    for place, one in enumerate(first):
        same = [one, *(other[place] for other in others if len(other) == len(first))]
        if len(same) != len(parts) or any(each.matrices != one.matrices for each in same):
            raise StageError(f"the statistics of {one.matrices[0]} are not in every shard: they are not of one model")
        found = [part.of(one.matrices[0]) for part in parts]
        kept = [each for each in found if each is not None]
        maximum = kept[0].maximum
        for each in kept[1:]:
            maximum = np.maximum(maximum, each.maximum)
        write_input(
            statistics / one.file,
            gram=_total(each.gram for each in kept),
            absolute_sum=_total(each.absolute_sum for each in kept),
            maximum=maximum,
        )
        merged.append(replace(one, rows=sum(each.rows for each in same)))
    write_index(statistics, tokens=sum(part.index.tokens for part in parts), inputs=merged)


def _total(arrays: Iterable[Array]) -> Array:
    """The sum, in the order given; one array is in memory at a time, besides the sum."""
    each = iter(arrays)
    total = next(each).astype(np.float64)
    for array in each:
        total += array
    return total.astype(np.float32)
