"""Gptq: the matrices of one imported shard become the integers that GPTQ chooses for them.

Reads `shard` (safetensors, Hugging Face names), `parameters` (parameters.json) and the folder `statistics`. Writes
`calibrated`: a shard of made parameters (`calibration.made_parameters`), of which Quantize keeps the integers. What the
scheme does not quantize, what was not observed, and integers of the checkpoint that the scheme stores as they are, stay
as they are. One matrix or expert is in memory at a time, and the factor of one input.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mlcbuild.compiler.calibration.gptq import Feedback, feedback, groups_of, quantized
from mlcbuild.compiler.calibration.made_parameters import Integers, write_made_shard
from mlcbuild.compiler.calibration.statistics import Statistics
from mlcbuild.compiler.models.checkpoints.parameters import Parameter, read_parameters
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.integer_grid import GridEncoder
from mlcbuild.compiler.quantization.scheme import Encoder, QuantizationScheme
from mlcbuild.compiler.weights.imported_shard import ImportedShard
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.kept_matrices import has_integers, kept_integers
from mlcbuild.compiler.weights.tensor import Array, Tensor, TensorDescription
from mlcbuild.errors import InternalError, StageError


def run(
    *,
    shard: Path,
    parameters: Path,
    statistics: Path,
    calibrated: Path,
    scheme: QuantizationScheme,
    encoder: Callable[[QuantizationScheme], Encoder],
    by_activations: bool,
) -> None:
    """`scheme` and its `encoder` are plug-ins; `by_activations` is the order of columns (`calibration.gptq.feedback`).
    Raises StageError for weights and statistics that are not finite, or that do not fit each other."""
    using = encoder(scheme)
    if not isinstance(using, GridEncoder):
        raise InternalError(f"{scheme.name} has no integers in groups of columns")
    source = ImportedShard(shard)
    change = _Gptq(source, Statistics(statistics), using, scheme.model_dtype, by_activations=by_activations)
    write_made_shard(calibrated, source, read_parameters(parameters), change)


class _Gptq:
    """A `calibration.made_parameters.Change`."""

    def __init__(
        self, source: ImportedShard, statistics: Statistics, encoder: GridEncoder, dtype: str, *, by_activations: bool
    ) -> None:
        self._source, self._statistics, self._encoder, self._dtype = source, statistics, encoder, dtype
        self._by_activations = by_activations
        self._last: tuple[str, Feedback] | None = None  # by the file of an input

    def becomes(self, parameter: Parameter) -> Integers | None:
        grid = self._encoder.grid(parameter)
        if grid is None or self._statistics.of(parameter.name) is None or self._keeps(parameter):
            return None
        return Integers(groups=groups_of(parameter.shape[-1], grid))

    def changed(self, parameter: Parameter, numbers: Array, expert: int | None) -> IntegerMatrix:
        grid = self._encoder.grid(parameter)
        assert grid is not None
        described = TensorDescription(name=parameter.name, dtype="float32", shape=numbers.shape)
        as_stored = Tensor(description=described, data=numbers).numbers(self._dtype)
        found = quantized(as_stored, self._feedback(parameter), grid)
        self._check_kept(parameter, found, expert)
        return found

    def _feedback(self, parameter: Parameter) -> Feedback:
        observed = self._statistics.of(parameter.name)
        assert observed is not None
        if observed.observed.width != parameter.shape[-1]:
            raise StageError(
                f"{parameter.name} has {parameter.shape[-1]} columns, and the statistics {observed.observed.width}"
            )
        file = observed.observed.file
        if self._last is None or self._last[0] != file:
            self._last = None  # before the next one is in memory
            self._last = (file, feedback(observed.gram, by_activations=self._by_activations))
        return self._last[1]

    def _keeps(self, parameter: Parameter) -> bool:
        """Whether the scheme stores integers of the checkpoint as they are; told by the first part."""
        first = parameter.parts[0]
        if not has_integers(self._source, first):
            return False
        joined = kept_integers(self._source, first)
        return joined is not None and self._encoder.store(first, joined) is not None

    def _check_kept(self, parameter: Parameter, found: IntegerMatrix, expert: int | None) -> None:
        """Quantize would restore what the scheme cannot store, and round it once more."""
        matrix, whole = parameter, found
        if parameter.role is ParameterRole.EXPERTS:
            matrix = parameter.parts[0]
            codes, zeros, scales = (array[None] for array in (found.codes, found.zeros, found.scales))
            whole = IntegerMatrix(codes=codes, zeros=zeros, scales=scales, scale_dtype=found.scale_dtype)
        if self._encoder.store(matrix, whole) is None:
            which = "" if expert is None else f" (expert {expert})"
            raise StageError(
                f"{parameter.name}{which} has weights that are too large for its scales in {self._dtype}",
                advice=("calibrate it by no method, or choose a quantization whose model computes in float32",),
            )
