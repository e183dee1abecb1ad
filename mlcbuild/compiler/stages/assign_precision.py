"""AssignPrecision: which scheme stores each matrix of a model, where a target has several.

Reads `model` and `parameters` (model.json, parameters.json of ResolveModel), and `precision` (precision.json), unless
the target says it itself. Writes `precision_out`, a precision.json with the names of matrices alone, and `model_out`,
the model with another kind for layers of another precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mlcbuild.compiler.models.checkpoints.parameters import read_parameters
from mlcbuild.compiler.models.description import read_model, write_model
from mlcbuild.compiler.quantization.mixed.layers import with_precision
from mlcbuild.compiler.quantization.mixed.precision import Precision, read_precision, write_precision
from mlcbuild.compiler.quantization.mixed.scheme import assign
from mlcbuild.compiler.quantization.scheme import QuantizationScheme


def run(
    *,
    model: Path,
    parameters: Path,
    model_out: Path,
    precision_out: Path,
    schemes: Sequence[QuantizationScheme],
    precision: Path | None = None,
    choices: Sequence[tuple[str, str]] = (),
) -> None:
    """`schemes` are plug-ins; `choices` are those of a target's table, in its order, with `default`.

    Raises StageError for a name or pattern that decides about no matrix, for schemes that compute in different types,
    and for a file that is no precision.json.
    """
    wanted = Precision.of_table(dict(choices)) if precision is None else read_precision(precision)
    scheme = assign(wanted, read_parameters(parameters).parameters, schemes)
    write_precision(scheme.precision, precision_out)
    description = read_model(model)
    write_model(replace(description, layers=with_precision(description.layers, scheme)), model_out)
