"""A model as one library or package has it: its sizes, and every reason why it cannot be built so.

The stage ConfigureModel calls this, and so does the analysis of a workspace for a model whose config.json is at hand,
so that an error is the same wherever it is found. Nothing here imports NumPy or tvm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mlcbuild.compiler.models.checkpoints.parameters import ParameterList
from mlcbuild.compiler.models.description import ModelDescription
from mlcbuild.compiler.models.sizes import Overrides, library_sizes
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.errors import StageError


@dataclass(frozen=True, kw_only=True)
class InvalidAttribute:
    """Why a model cannot be built as a target says: `attribute` is the target's that says it."""

    attribute: str
    error: StageError


def configure(
    model: ModelDescription,
    parameters: ParameterList,
    *,
    scheme: QuantizationScheme,
    overrides: Mapping[str, object],
    kv_state_kinds: Sequence[str] | None = None,
    sliding_windows: bool = True,
) -> tuple[ModelDescription, tuple[InvalidAttribute, ...]]:
    """The model with the target's sizes, and all that is wrong with it.

    `kv_state_kinds` are those that the platform has kernels for; None where no library is made. `sliding_windows` says
    whether the platform has kernels for a window.
    """
    invalid = []
    configured = model
    try:
        sizes = library_sizes(model.limits, Overrides.parse(overrides), model_type=model.model_type)
        configured = replace(model, sizes=sizes)
    except StageError as error:
        invalid.append(InvalidAttribute(attribute="overrides", error=error))
    try:
        for parameter in parameters.parameters:
            scheme.stored(parameter)
    except StageError as error:
        invalid.append(InvalidAttribute(attribute="quantization", error=error))
    if kv_state_kinds is not None and model.kv_state_kind not in kv_state_kinds:
        known = ", ".join(kv_state_kinds) or "none"
        kept = StageError(
            no_kernels_for_state("the platform", model.kv_state_kind, f'models of type "{model.model_type}"'),
            advice=(f"it has them for: {known}",),
        )
        invalid.append(InvalidAttribute(attribute="platform", error=kept))
    window = configured.sizes.window
    if window is not None and not sliding_windows:
        slides = StageError(
            f"the platform has no kernels for a sliding window, which is {window.size} tokens here",
            advice=("to build without the window, override sliding_window_size = -1",),
        )
        invalid.append(InvalidAttribute(attribute="platform", error=slides))
    return configured, tuple(invalid)


def no_kernels_for_state(platforms: str, kv_state_kind: str, models: str) -> str:
    """Why models cannot be built for platforms that cannot keep their sequences' state."""
    return f"{platforms} has no kernels for the {kv_state_kind} of {models}"
