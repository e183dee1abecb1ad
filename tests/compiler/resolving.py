"""What ResolveModel and ConfigureModel make of a config.json, for tests of the stages behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.checkpoints.parameters import ParameterList
from mlcbuild.compiler.models.description import ModelDescription
from mlcbuild.compiler.models.resolving import resolve
from mlcbuild.compiler.quantization.mixed.precision import read_precision
from mlcbuild.compiler.quantization.mixed.scheme import MixedScheme
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.compiler.stages import assign_precision, configure_model, resolve_model
from mlcbuild.compiler.weights.quantized_source import FormatReader
from mlcbuild.plugins import load_plugin
from mlcbuild.rules.checkpoint_formats import formats, reader_plugins
from mlcbuild.rules.families import families, model_plugins
from mlcbuild.rules.schemes import scheme

if TYPE_CHECKING:  # A machine with a GPU may have TVM's runtime alone.
    from mlcbuild.compiler.models.compilable import AnyModelBuilder


def model_of(config: Mapping[str, object]) -> ModelDescription:
    return resolve(config, families(), formats())[0]


def parameters_of(config: Mapping[str, object]) -> ParameterList:
    return resolve(config, families(), formats())[1]


def model_builders() -> tuple[AnyModelBuilder, ...]:
    """Every family's `MODEL`."""
    return tuple(map(load_plugin, model_plugins()))


def readers() -> tuple[FormatReader, ...]:
    """Those of every format of quantized checkpoints."""
    return tuple(map(load_plugin, reader_plugins()))


def write_resolved(directory: Path, config: Mapping[str, object]) -> None:
    """Write `config.json`, `model.json` and `parameters.json`."""
    (directory / "config.json").write_text(json.dumps(config))
    resolve_model.run(
        formats=formats(),
        config=directory / "config.json",
        model=directory / "model.json",
        parameters=directory / "parameters.json",
        families=families(),
    )


def write_assigned(directory: Path, table: Mapping[str, str]) -> MixedScheme:
    """Write `precision.json` for a table of quantization, and `model.json` anew; the scheme of these."""
    assign_precision.run(
        model=directory / "model.json",
        parameters=directory / "parameters.json",
        model_out=directory / "model.json",
        precision_out=directory / "precision.json",
        schemes=tuple(map(scheme, dict.fromkeys(table.values()))),
        choices=tuple(table.items()),
    )
    found = assigned(directory)
    assert found is not None
    return found


def assigned(directory: Path) -> MixedScheme | None:
    """The scheme of a `precision.json`, if there is one."""
    if not (directory / "precision.json").exists():
        return None
    precision = read_precision(directory / "precision.json")
    return MixedScheme(precision=precision, schemes=tuple(map(scheme, precision.schemes)))


def write_configured(
    directory: Path, quantization: str | QuantizationScheme, overrides: Mapping[str, object] | None = None
) -> None:
    """Write `configured.json`, the model of a library, beside what `write_resolved` wrote."""
    configure_model.run(
        model=directory / "model.json",
        parameters=directory / "parameters.json",
        model_out=directory / "configured.json",
        parameters_out=directory / "parameters.configured.json",
        window=directory / "window.json",
        scheme=scheme(quantization) if isinstance(quantization, str) else quantization,
        overrides=overrides or {},
    )
