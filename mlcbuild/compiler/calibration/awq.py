"""AWQ: scales of inputs, chosen by the error that the scheme itself makes.

J. Lin et al., "AWQ: Activation-aware Weight Quantization" (arXiv 2306.00978), section 3.2. Columns that meet large
inputs are quantized more exactly if they are multiplied by a scale above 1, and their inputs divided by it. The scales
of an input are

    s = mean|x| ^ α, divided by √(max s · min s)

and α is that of 0, 1/16, … 1 for which Σ trace(ΔW G ΔWᵀ) over the matrices W that read the input is least, where
ΔW = Q(W s) / s - W for the scheme's own rounding Q, and G = Σ xᵀ x. α = 0 leaves everything as it is.

Every other α is tried, then the two beside the best one, and these are compared by some rows of large matrices. The
best is then compared with α = 0 by all rows, and is taken only if its error is smaller. (AWQ measures the outputs of a
block; the trace is that of the matrices alone, and needs no other pass over the text.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mlcbuild.compiler.calibration.matrices import ModelMatrices, Rounding, blocks
from mlcbuild.compiler.calibration.measured_error import MeasuredError
from mlcbuild.compiler.calibration.powers import power
from mlcbuild.compiler.calibration.scales import of_columns
from mlcbuild.compiler.calibration.statistics import InputStatistics
from mlcbuild.compiler.models.checkpoints.parameters import Parameter
from mlcbuild.compiler.models.checkpoints.smoothing import SmoothedInput
from mlcbuild.compiler.weights.tensor import Array

STEPS = 16
_TINY = 2.0**-126
_LEAST = 1e-4  # of the largest mean: what a channel without inputs is taken to have


def search_scales(
    smoothed: SmoothedInput, statistics: InputStatistics, matrices: ModelMatrices, rounding: Rounding
) -> Array | None:
    """The scales (channels,) float32 of an input; None where it is best left as it is."""
    readers = [matrices.parameter(name) for name in smoothed.matrices]
    covered = [parameter for parameter in readers if rounding.covers(parameter)]
    if not covered or not statistics.rows:
        return None
    measured = MeasuredError(statistics.gram)
    means = by_channels(statistics.absolute_sum, smoothed, np.add)
    samples = [(parameter, matrices.sample(parameter.name)) for parameter in covered]

    def error(scales: Array, rows_of: Iterable[tuple[Parameter, Sequence[Array]]]) -> float:
        columns = of_columns(scales, smoothed)
        return sum(_error(measured, rounding, parameter, columns, rows) for parameter, rows in rows_of)

    def whole() -> Iterable[tuple[Parameter, Sequence[Array]]]:
        return ((parameter, blocks(one)) for parameter in covered for one in matrices.numbers(parameter.name))

    errors: dict[int, float] = {}

    def best_of(steps: Iterable[int]) -> int:
        errors.update({step: error(scales_of(means, step / STEPS), samples) for step in steps if step not in errors})
        return min(sorted(errors), key=errors.__getitem__)

    near = best_of(range(0, STEPS + 1, 2))
    best = best_of(step for step in (near - 1, near + 1) if 0 <= step <= STEPS)
    scales = scales_of(means, best / STEPS)
    plain = np.ones_like(scales)
    return scales if best and error(scales, whole()) < error(plain, whole()) else None


def scales_of(means: Array, alpha: float) -> Array:
    """The scales by the channels' inputs: (channels,) float32."""
    numbers = means.astype(np.float64)
    least = max(_LEAST * float(numbers.max()), _TINY)
    scales = power(np.maximum(numbers, least), alpha)
    found: Array = (scales / np.sqrt(scales.max() * scales.min())).astype(np.float32)
    return found


def by_channels(columns: Array, smoothed: SmoothedInput, combined: np.ufunc) -> Array:
    """A number of each column as one of each channel, which several columns may have."""
    runs = columns.reshape(-1, smoothed.repeats, smoothed.width)
    found = runs[:, 0]
    for place in range(1, smoothed.repeats):
        found = combined(found, runs[:, place])
    return found.reshape(-1)


def _error(
    measured: MeasuredError, rounding: Rounding, parameter: Parameter, columns: Array, rows_of: Sequence[Array]
) -> float:
    total = 0.0
    for rows in rows_of:
        rounded = rounding(parameter, rows * columns)
        if rounded is None:
            return float("inf")
        total += measured.total(rounded / columns - rows)
    return total
