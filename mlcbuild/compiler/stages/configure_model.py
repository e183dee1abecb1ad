"""ConfigureModel: a model as one library or package has it, with its overrides applied and its quantization checked.

Reads `model` and `parameters` of ResolveModel. Writes `model_out`, model.json with the library's own sizes, and
`parameters_out`, which is `parameters` unchanged. Everything else of the library or package takes its parameters from
here, so that a mistake is told before anything of it is done, and overrides that differ do not quantize twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mlcbuild.compiler.models.description import read_model, write_model
from mlcbuild.compiler.models.parameters import read_parameters
from mlcbuild.compiler.models.sizes import Overrides, library_sizes
from mlcbuild.compiler.quantization.scheme import QuantizationScheme


def run(
    *,
    model: Path,
    parameters: Path,
    model_out: Path,
    parameters_out: Path,
    scheme: QuantizationScheme,
    overrides: Mapping[str, object],
) -> None:
    """`overrides` are those of `models.sizes.Overrides`; `scheme` is a plug-in.

    Raises StageError for a bad override, one that the model or another override does not allow, and a parameter that
    the scheme cannot store.
    """
    description = read_model(model)
    sizes = library_sizes(description.limits, Overrides.parse(overrides), model_type=description.model_type)
    for parameter in read_parameters(parameters).parameters:
        scheme.stored(parameter)
    write_model(replace(description, sizes=sizes), model_out)
    shutil.copyfile(parameters, parameters_out)
