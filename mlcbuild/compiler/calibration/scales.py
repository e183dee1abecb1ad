"""Scales of matrices' inputs and limits of their groups, found by a calibration: the file that hands them on, and what
they do to parameters.

The columns of matrices that share a smoothed input (`checkpoints.smoothing`) are multiplied by its scales, and what
absorbs these is divided by them. Then the groups of a matrix are clipped to a fraction of their largest magnitude. All
is float32 and element by element, in this order, so its bytes are the same on every processor.

The file is safetensors. `<matrix>:scales` (channels,) float32 are those of an input, by the first matrix that reads it,
`<matrix>:clipping` (…, out, groups) uint8 are fractions of groups in twentieths, and `<matrix>:group_size` (1,) int32
says how many columns each of them has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from mlcbuild.compiler.calibration.made_parameters import Numbers
from mlcbuild.compiler.calibration.statistics import InputStatistics, Statistics
from mlcbuild.compiler.models.checkpoints.parameters import Parameter
from mlcbuild.compiler.models.checkpoints.smoothing import Absorber, SmoothedInput
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.integers import whole_groups
from mlcbuild.compiler.weights.safetensors_file import SafetensorsFile, write_safetensors
from mlcbuild.compiler.weights.tensor import BYTES, Array, Tensor, TensorDescription

SCALES, CLIPPING, GROUP_SIZE = ":scales", ":clipping", ":group_size"
WHOLE = 20
"""The fraction of a group that is not clipped, in twentieths."""


@dataclass(frozen=True, kw_only=True)
class Clipping:
    """`fractions` (…, out, groups) uint8, in twentieths, of groups of so many columns."""

    fractions: Array
    group_size: int


@dataclass(frozen=True, kw_only=True)
class Scales:
    """What a calibration found: scales of inputs by their first matrices, and clipping by matrices. What has none is
    not there."""

    scales: Mapping[str, Array]
    clipping: Mapping[str, Clipping] = field(default_factory=dict)


Search = Callable[[SmoothedInput, InputStatistics], Array | None]
"""Finds scales (channels,) float32 of an input; None where it stays as it is."""


def scales_of_inputs(smoothed: Iterable[SmoothedInput], observed: Statistics, search: Search) -> dict[str, Array]:
    """The scales of those inputs that were observed, by their first matrices. The log tells of each."""
    found: dict[str, Array] = {}
    for one in smoothed:
        first = one.matrices[0]
        seen = observed.of(first)
        scales = None if seen is None else search(one, seen)
        if scales is not None:
            found[first] = scales
            print(f"{first}: scales from {scales.min():.3g} to {scales.max():.3g}", flush=True)
    return found


def write_scales(path: Path, found: Scales) -> None:
    """Write the file; equal scales give equal bytes."""
    arrays = {name + SCALES: array for name, array in found.scales.items()}
    for name, clipping in found.clipping.items():
        arrays[name + CLIPPING] = clipping.fractions
        arrays[name + GROUP_SIZE] = np.array([clipping.group_size], "<i4")
    dtypes = {np.dtype(np.float32): "float32", np.dtype(np.uint8): BYTES, np.dtype(np.int32): "int32"}
    described = [
        TensorDescription(name=name, dtype=dtypes[array.dtype], shape=array.shape) for name, array in arrays.items()
    ]
    write_safetensors(path, described, lambda one: Tensor(description=one, data=arrays[one.name]))


def read_scales(path: Path) -> Scales:
    """Raises StageError for a damaged file."""
    file = SafetensorsFile(path)

    def of(suffix: str) -> dict[str, Array]:
        return {name.removesuffix(suffix): file.read(name).data for name in file.descriptions if name.endswith(suffix)}

    sizes = of(GROUP_SIZE)
    return Scales(
        scales=of(SCALES),
        clipping={
            name: Clipping(fractions=fractions, group_size=int(sizes[name][0]))
            for name, fractions in of(CLIPPING).items()
        },
    )


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The `made_parameters.Change` that carries out what was found for a model with these `smoothed` inputs."""

    found: Scales
    smoothed: tuple[SmoothedInput, ...]

    @cached_property
    def _inputs(self) -> Mapping[str, SmoothedInput]:
        """Inputs that have scales, by the matrices that read them."""
        return {name: one for one in self.smoothed if one.matrices[0] in self.found.scales for name in one.matrices}

    @cached_property
    def _absorbed(self) -> Mapping[str, tuple[tuple[SmoothedInput, Absorber], ...]]:
        found: dict[str, tuple[tuple[SmoothedInput, Absorber], ...]] = {}
        for one in self.smoothed:
            if one.matrices[0] in self.found.scales:
                for absorber in one.absorbed_by:
                    found[absorber.parameter] = (*found.get(absorber.parameter, ()), (one, absorber))
        return found

    def becomes(self, parameter: Parameter) -> Numbers | None:
        name = parameter.name
        is_changed = name in self._inputs or name in self._absorbed or name in self.found.clipping
        return Numbers() if is_changed else None

    def changed(self, parameter: Parameter, numbers: Array, expert: int | None) -> Array:
        scaled = self.scaled(parameter, numbers)
        clipping = self.found.clipping.get(parameter.name)
        if clipping is None:
            return scaled
        fractions = clipping.fractions if expert is None else clipping.fractions[expert]
        return clipped(scaled, fractions, clipping.group_size)

    def column_scales(self, matrix: str) -> Array | None:
        """What the columns of a matrix are multiplied by: (in,) float32. None where they stay as they are."""
        one = self._inputs.get(matrix)
        return None if one is None else of_columns(self.found.scales[one.matrices[0]], one)

    def scaled(self, parameter: Parameter, numbers: Array) -> Array:
        """A parameter, or one expert's matrix, before its groups are clipped."""
        made = numbers
        factors = self.column_scales(parameter.name)
        if factors is not None:
            made = made * factors
        for one, absorber in self._absorbed.get(parameter.name, ()):
            divisors = self.found.scales[one.matrices[0]]
            divisors = np.sqrt(divisors) if one.degree == 2 else divisors
            rows = slice(absorber.begin, absorber.begin + one.channels)
            made = made.copy()
            if parameter.role is ParameterRole.VECTOR:
                made[..., rows] /= divisors
            else:
                made[rows] /= divisors[:, np.newaxis]
        return np.ascontiguousarray(made, np.float32)


def of_columns(scales: Array, smoothed: SmoothedInput) -> Array:
    """Scales of channels as those of a matrix's columns."""
    runs = scales.reshape(-1, 1, smoothed.width)
    return np.repeat(runs, smoothed.repeats, axis=1).reshape(-1)


def clipped(matrix: Array, fractions: Array, group_size: int) -> Array:
    """(out, in) with groups within fractions (out, groups), in twentieths, of their largest magnitudes."""
    rows, columns = matrix.shape
    groups = whole_groups(matrix, group_size).reshape(rows, -1, group_size)
    limits = np.abs(groups).max(axis=2) * (fractions.astype(np.float32) / np.float32(WHOLE))
    limits = np.where(fractions == WHOLE, np.float32(np.inf), limits)[:, :, np.newaxis]
    cut = np.clip(groups, -limits, limits).reshape(rows, -1)
    return np.ascontiguousarray(cut[:, :columns])
