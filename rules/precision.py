"""How a target's parameters are stored: by one scheme, or by several, as its attribute `quantization` says.

One is a plug-in of the stages that take a scheme. Several are plug-ins of `stages/with_precision.py`, which calls the
stage with a scheme made of them, by the precision.json that AssignPrecision writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mlcbuild.compiler.quantization.mixed.precision import Precision, parse_precision
from mlcbuild.compiler.quantization.mixed.scheme import assign, check_one_dtype
from mlcbuild.engine.action import Artifact, DerivedArtifact, SourceArtifact
from mlcbuild.errors import StageError
from mlcbuild.rules import schemes
from mlcbuild.rules.providers import ModelInfo
from mlcbuild.rules.rule import RuleContext
from mlcbuild.suggestions import known_values
from mlcbuild.workspace.schema import Attribute, AttributeKind

if TYPE_CHECKING:
    from mlcbuild.compiler.quantization.scheme import QuantizationScheme

FILE_SUFFIX = ".json"
AUTO = "auto"
"""The quantization of targets whose schemes are chosen (`rules.automatic_precision`)."""
QUANTIZATION = Attribute(
    name="quantization",
    kind=AttributeKind.CHOICE,
    allowed=(*schemes.NAMES, AUTO),
    by_pattern=True,
    file_suffix=FILE_SUFFIX,
    mandatory=True,
    doc="How matrices are stored, by MLC-LLM's names; those that begin with q0 do not quantize. Or a table of these by "
    'names of matrices, with `default`: { default = "q4f16_1", "model.layers.*.mlp.down_proj" = "q8f16_1" }; or the '
    "path of a file with such a table, precision.json; or auto, where `budget` and `calibration` decide about each.",
)


@dataclass(frozen=True, kw_only=True)
class SchemeStage:
    """A stage that takes a scheme: its function, and what its action has besides the stage's own."""

    function: str
    inputs: Mapping[str, DerivedArtifact]
    plugins: Mapping[str, str | tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class TargetPrecision:
    """`names` are the schemes of a target, the default first. `precision` is their precision.json, None where there is
    one scheme. `model` is model.json of ResolveModel, with kinds of layers that differ in precision."""

    names: tuple[str, ...]
    model: DerivedArtifact
    precision: DerivedArtifact | None = None
    chosen: DerivedArtifact | None = None  # the file of ChoosePrecision, which also says what was measured

    def stage(self, function: str, *parts: Literal["encoder", "reader"]) -> SchemeStage:
        """A stage function that takes a `scheme`, and these `parts` of it."""
        if self.precision is None:
            scheme = schemes.scheme(self.names[0])
            return SchemeStage(
                function=function,
                inputs={},
                plugins={
                    "scheme": schemes.plugin(self.names[0]),
                    **{part: getattr(scheme, part) for part in parts},
                },
            )
        plugins: dict[str, str | tuple[str, ...]] = {"stage": function, "schemes": _plugins(self.names)}
        for part in parts:
            plugins[part] = _MIXED[part]
            plugins[f"{part}s"] = tuple(getattr(schemes.scheme(name), part) for name in self.names)
        return SchemeStage(function=_WITH_PRECISION, inputs={"precision": self.precision}, plugins=plugins)

    @property
    def files(self) -> tuple[tuple[str, Artifact], ...]:
        """What is placed of it with the target's files: the precision.json, for people."""
        shown = self.chosen or self.precision
        return () if shown is None else (("precision.json", shown),)


_WITH_PRECISION = "mlcbuild.compiler.stages.with_precision:run"
_MIXED = {
    "encoder": "mlcbuild.compiler.quantization.mixed.encoder:MixedEncoder",
    "reader": "mlcbuild.compiler.quantization.mixed.reader:MixedReader",
}


def one_scheme(model: ModelInfo, name: str) -> tuple[TargetPrecision, QuantizationScheme]:
    """The same as `target_precision` for a scheme."""
    return TargetPrecision(names=(name,), model=model.model), schemes.scheme(name)


def target_precision(context: RuleContext, model: ModelInfo) -> tuple[TargetPrecision, QuantizationScheme | None]:
    """What the target's `quantization` says, and the scheme, if it is known before anything runs. Declares the action
    that assigns schemes to matrices, where there are several, and reports what is wrong with them. Raises
    WorkspaceError for a file that cannot be read."""
    value = context.target.get("quantization")
    if value == AUTO or (isinstance(value, Mapping) and AUTO in value.values()):
        raise context.error(
            f'"{AUTO}" is no scheme here: what is chosen follows from weights',
            attribute="quantization",
            advice=(
                "it may be the whole quantization of a quantized_weights, model_package or gguf_package; give a "
                "model_library the precision.json of such a target",
            ),
        )
    if isinstance(value, str) and not value.endswith(FILE_SUFFIX):
        return one_scheme(model, value)
    if isinstance(value, str):
        file = SourceArtifact(path=value)
        wanted = _read(context, file)
        return assign_precision(context, model, wanted.schemes, file=file), _assigned(context, model, wanted)
    wanted = Precision.of_table(dict(context.target.string_map("quantization")))
    assigned = assign_precision(context, model, wanted.schemes, table=wanted.table)
    return assigned, _assigned(context, model, wanted)


def assign_precision(
    context: RuleContext,
    model: ModelInfo,
    names: tuple[str, ...],
    *,
    file: SourceArtifact | DerivedArtifact | None = None,
    table: Mapping[str, str] | None = None,
) -> TargetPrecision:
    """Declare the action that assigns the schemes of these names to matrices, by a precision.json or a table."""
    action = context.stage(
        "AssignPrecision",
        "mlcbuild.compiler.stages.assign_precision:run",
        inputs={
            "model": model.model,
            "parameters": model.parameters,
            **({} if file is None else {"precision": file}),
        },
        outputs={"model_out": "model.json", "precision_out": "precision.json"},
        parameters={} if table is None else {"choices": [[key, scheme] for key, scheme in table.items()]},
        plugins={"schemes": _plugins(names)},
    )
    return TargetPrecision(
        names=names,
        model=action.output("out/model.json"),
        precision=action.output("out/precision.json"),
    )


def _read(context: RuleContext, file: SourceArtifact) -> Precision:
    try:
        found = parse_precision(context.read(file, attribute="quantization"), where=file.path)
    except StageError as error:
        raise context.error(error, attribute="quantization") from None
    for name in found.schemes:
        if name not in schemes.NAMES:
            message, advice = f'unknown quantization "{name}" in {file.path}', known_values(name, schemes.NAMES)
            raise context.error(message, attribute="quantization", advice=(advice,))
    return found


def _assigned(context: RuleContext, model: ModelInfo, wanted: Precision) -> QuantizationScheme | None:
    """The scheme of a model that is at hand. Reports schemes that do not go together, and names that it does not
    have."""
    named = [schemes.scheme(name) for name in wanted.schemes]
    try:
        check_one_dtype(named)
        if model.known is not None:
            return assign(wanted, model.known.parameters.parameters, named)
    except StageError as error:
        context.report(error, attribute="quantization")
    return None


def _plugins(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(schemes.plugin, names))
