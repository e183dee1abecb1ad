"""SmoothQuant: scales that move what is hard to round from activations to weights.

G. Xiao et al., "SmoothQuant" (arXiv 2211.10438), section 4. Where activations are rounded to integers of 8 bits, a few
channels with large numbers leave few integers to all others. An input is divided, channel by channel, by

    s = max|x| ^ α / max|W| ^ (1 - α)

where W are the columns of all matrices that read the channel. α says how much of the difficulty the weights are given:
0 for none. Scales are divided by √(max s · min s), which leaves every quotient of two as it is.
"""

from __future__ import annotations

import numpy as np

from mlcbuild.compiler.calibration.awq import by_channels
from mlcbuild.compiler.calibration.matrices import ModelMatrices, Rounding
from mlcbuild.compiler.calibration.powers import power
from mlcbuild.compiler.calibration.statistics import InputStatistics
from mlcbuild.compiler.models.checkpoints.smoothing import SmoothedInput
from mlcbuild.compiler.weights.tensor import Array

_LEAST = 1e-5  # of the largest: what channels without inputs, or without weights, are taken to have


def smoothing_scales(
    smoothed: SmoothedInput, statistics: InputStatistics, matrices: ModelMatrices, rounding: Rounding, *, alpha: float
) -> Array | None:
    """The scales (channels,) float32 of an input; None where no matrix that reads it is quantized."""
    readers = [matrices.parameter(name) for name in smoothed.matrices]
    covered = [parameter for parameter in readers if rounding.covers(parameter)]
    if not covered or not statistics.rows:
        return None
    largest = np.zeros(smoothed.columns, np.float32)
    for parameter in covered:
        for matrix in matrices.numbers(parameter.name):
            largest = np.maximum(largest, np.abs(matrix).max(axis=0))
    inputs = by_channels(statistics.maximum, smoothed, np.maximum)
    weights = by_channels(largest, smoothed, np.maximum)
    if not inputs.any() or not weights.any():
        return None
    scales = power(_floored(inputs), alpha) / power(_floored(weights), 1 - alpha)
    found: Array = (scales / np.sqrt(scales.max() * scales.min())).astype(np.float32)
    return found


def _floored(numbers: Array) -> Array:
    wide = numbers.astype(np.float64)
    found: Array = np.maximum(wide, _LEAST * float(wide.max()))
    return found
