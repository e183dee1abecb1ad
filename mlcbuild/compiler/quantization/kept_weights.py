"""Whether schemes keep what a quantized checkpoint holds, or would have it restored and quantized again."""

from __future__ import annotations

from collections.abc import Iterable

from mlcbuild.compiler.models.checkpoints.parameters import QuantizedCheckpoint
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.mixed.scheme import MixedScheme
from mlcbuild.compiler.quantization.scheme import KeepingScheme, QuantizationScheme
from mlcbuild.errors import StageError

ALLOW = "allow_requantize"
"""The attribute by which a target has them quantized again."""


def check_kept(
    quantized: QuantizedCheckpoint | None,
    used: Iterable[QuantizationScheme],
    *,
    known: Iterable[QuantizationScheme] = (),
) -> None:
    """Raises StageError where all of a target's schemes that quantize linear layers would quantize a checkpoint's
    weights again; of the schemes that are `known`, it names those that would not."""
    single = [one for scheme in used for one in (scheme.schemes if isinstance(scheme, MixedScheme) else (scheme,))]
    again = [scheme for scheme in single if scheme.covers(ParameterRole.LINEAR)]
    if quantized is None or not again or any(_may_keep(scheme, quantized) for scheme in again):
        return
    keeping = [scheme.name for scheme in known if _may_keep(scheme, quantized)]
    raise StageError(
        f"the checkpoint's weights are quantized already ({quantized.held.words}), and "
        f"{', '.join(scheme.name for scheme in again)} would quantize them again",
        advice=(
            f"what keeps them as they are: {', '.join(keeping) or 'no quantization'}",
            "one that begins with q0 restores them, and rounds no more",
            again_advice(),
        ),
    )


def again_advice() -> str:
    return f"to have them restored and quantized again, write {ALLOW} = true"


def _may_keep(scheme: QuantizationScheme, quantized: QuantizedCheckpoint) -> bool:
    return isinstance(scheme, KeepingScheme) and scheme.may_keep(quantized.held)
