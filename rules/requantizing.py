"""Weights of a checkpoint that is quantized already are quantized again only where a target says so."""

from __future__ import annotations

from collections.abc import Sequence

from mlcbuild.compiler.quantization.kept_weights import ALLOW, check_kept
from mlcbuild.errors import StageError
from mlcbuild.rules import schemes
from mlcbuild.rules.providers import ModelInfo
from mlcbuild.rules.rule import RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind

ALLOW_REQUANTIZE = Attribute(
    name=ALLOW,
    kind=AttributeKind.BOOLEAN,
    doc="Whether weights of a checkpoint that is quantized already (by AWQ, GPTQ, compressed-tensors, bitsandbytes or "
    "in fp8) may be restored and quantized again, where the quantization does not store them as they are. Else such a "
    "target is refused.",
)


def refuses_requantizing(context: RuleContext) -> bool:
    """Whether a target makes weights, and may not quantize those of a quantized checkpoint again."""
    return context.target.declares(ALLOW) and not context.target.boolean(ALLOW)


def check_kept_weights(context: RuleContext, model: ModelInfo, names: Sequence[str]) -> None:
    """Report schemes that would quantize the weights of a model again, if its config.json is at hand."""
    if model.known is None:
        return
    try:
        check_kept(
            model.known.parameters.quantized,
            map(schemes.scheme, names),
            known=map(schemes.scheme, schemes.NAMES),
        )
    except StageError as error:
        context.report(error, attribute="quantization")
