"""The parameters of recurrences by MLC-LLM's names, or Hugging Face's where it has no such model, and the tensors of
checkpoints that they are."""

from __future__ import annotations

from mlcbuild.compiler.models.checkpoint_layout import CheckpointLayout
from mlcbuild.compiler.models.parameters import (
    CheckpointTensor,
    Parameter,
    ParameterList,
    ParameterRole,
    TensorLayout,
    TiedTensor,
)
from mlcbuild.compiler.models.recurrence import Recurrence
from mlcbuild.compiler.models.recurrent_model import RecurrentModelConfig


def recurrent_model_parameters(config: RecurrentModelConfig, layout: CheckpointLayout) -> ParameterList:
    """Every parameter, in the order of the forward pass. A tied model has no head: its embedding serves."""
    names, hidden = config.names, config.hidden_size

    def parameter(name: str, source: str, role: ParameterRole, *shape: int) -> Parameter:
        full = f"{source}.weight"
        others = tuple(TensorLayout(name=other, shape=shape) for other in layout.others(full))
        tensor = CheckpointTensor(name=full, shape=shape, others=others)
        return Parameter(name=f"{name}.weight", role=role, shape=shape, sources=(tensor,))

    vocabulary = (config.vocab_size, hidden)
    embedding = parameter(names.embedding, layout.embedding.hugging_face, ParameterRole.EMBEDDING, *vocabulary)
    found = [embedding]
    for number in range(config.num_layers):
        own, checkpoint = f"{names.layers}.{number}", f"{layout.layers}.{number}"
        norm = f"{checkpoint}.{layout.attention_norm.hugging_face}"
        found.append(parameter(f"{own}.{names.attention_norm}", norm, ParameterRole.VECTOR, hidden))
        found += recurrence_parameters(
            config.recurrence,
            hidden,
            own=f"{own}.{names.recurrence}",
            checkpoint=f"{checkpoint}.{layout.recurrence.hugging_face}",
        )
    found.append(parameter(names.norm, layout.norm.hugging_face, ParameterRole.VECTOR, hidden))
    head = parameter(names.head, layout.head.hugging_face, ParameterRole.FINAL_FC, *vocabulary)
    if config.tie_word_embeddings:
        tied = TiedTensor(tensor=head.sources[0], equal_to=embedding.sources[0].name)
        return ParameterList(parameters=tuple(found), tied=(tied,))
    return ParameterList(parameters=(*found, head))


def recurrence_parameters(config: Recurrence, hidden_size: int, *, own: str, checkpoint: str) -> list[Parameter]:
    """Those of the module that is called `own`, and `checkpoint` in checkpoints."""
    matrix, vector, constant = ParameterRole.LINEAR, ParameterRole.VECTOR, ParameterRole.FLOAT32

    def parameter(name: str, role: ParameterRole, *shape: int) -> Parameter:
        source = CheckpointTensor(name=f"{checkpoint}.{name}", shape=shape)
        return Parameter(name=f"{own}.{name}", role=role, shape=shape, sources=(source,))

    size = config.inner + config.channels + config.heads
    found = [parameter("in_proj.weight", matrix, size, hidden_size)]
    if config.bias:
        found.append(parameter("in_proj.bias", vector, size))
    found.append(parameter("conv1d.weight", vector, config.channels, 1, config.convolution))
    if config.convolution_bias:
        found.append(parameter("conv1d.bias", vector, config.channels))
    found += [parameter(name, constant, config.heads) for name in ("dt_bias", "A_log", "D")]
    found.append(parameter("norm.weight", vector, config.inner))
    found.append(parameter("out_proj.weight", matrix, hidden_size, config.inner))
    if config.bias:
        found.append(parameter("out_proj.bias", vector, hidden_size))
    return found
