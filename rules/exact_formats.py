"""What can be told at once of a package in another engine's format: its scheme, and the model, if that is at hand."""

from __future__ import annotations

from collections.abc import Iterable

from mlcbuild.errors import StageError
from mlcbuild.rules import schemes
from mlcbuild.rules.families import families
from mlcbuild.rules.providers import ModelInfo
from mlcbuild.rules.rule import RuleContext


def check_gguf_quantization(context: RuleContext, quantization: str) -> None:
    """Report a scheme whose weights a GGUF file cannot say without rounding them again."""
    from mlcbuild.compiler.formats.exact_forms import check_gguf_scheme

    try:
        check_gguf_scheme(schemes.scheme(quantization))
    except StageError as error:
        context.report_illegal(error, attribute="quantization")


def check_gguf(context: RuleContext, model: ModelInfo) -> None:
    """Report a model of which a GGUF file cannot say everything, where its config.json is at hand."""
    from mlcbuild.compiler.formats.gguf.described_model import describe

    if model.known is None:
        return
    known = model.known
    try:
        describe(known.description, known.parameters, known.document, families())
    except StageError as error:
        context.report(error, attribute="model")


def check_compressed_tensors(context: RuleContext, model: ModelInfo, quantizations: Iterable[str]) -> None:
    """Report schemes whose weights compressed-tensors cannot say, and a model whose checkpoints are not written."""
    from mlcbuild.compiler.formats.compressed_tensors.described_model import check_model
    from mlcbuild.compiler.formats.compressed_tensors.module_form import check_scheme

    for name in quantizations:
        try:
            check_scheme(schemes.scheme(name))
        except StageError as error:
            context.report_illegal(error, attribute="quantization")
    if model.known is None:
        return
    try:
        check_model(model.known.document, model.known.parameters.parameters)
    except StageError as error:
        context.report(error, attribute="model")
