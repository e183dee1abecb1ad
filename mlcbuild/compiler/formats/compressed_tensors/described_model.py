"""Which models a checkpoint of Hugging Face's names can be written of. Neither NumPy nor tvm is imported here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mlcbuild.compiler.models.checkpoints.parameters import Parameter
from mlcbuild.compiler.models.embedding import FIELD
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.errors import StageError

# Their checkpoints have all experts of a layer in one tensor.
_FUSED_EXPERTS = ("gpt_oss", "granitemoe", "granitemoehybrid", "granitemoeshared", "llama4_text")


def check_model(document: Mapping[str, object], parameters: Iterable[Parameter]) -> None:
    """Raises StageError for a model whose config.json says more than its weights here have, and for one whose
    checkpoints have other tensors than are written."""
    model_type = document.get("model_type")
    if "text_config" in document:
        raise StageError(
            f'a checkpoint of "{model_type}" has a vision part, which is not built',
            advice=("give the model's text part a config.json of its own, or use a model_package",),
        )
    if FIELD in document:
        raise StageError(
            f'how texts become vectors is not written: the files of sentence-transformers that "{FIELD}" comes from',
            advice=("use a model_package",),
        )
    if model_type in _FUSED_EXPERTS and any(one.role is ParameterRole.EXPERTS for one in parameters):
        raise StageError(
            f'checkpoints of "{model_type}" have all experts of a layer in one tensor, which is not written',
            advice=("use a model_package or a gguf_package",),
        )
