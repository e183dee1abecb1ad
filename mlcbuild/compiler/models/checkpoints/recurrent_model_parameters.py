"""The parameters of a language model whose layers are recurrences alone (`architecture.recurrent_model`)."""

from __future__ import annotations

from mlcbuild.compiler.models.architecture.recurrent_model import RecurrentModelConfig
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.checkpoints.parameters import (
    CheckpointTensor,
    Parameter,
    ParameterList,
    TensorLayout,
    TiedTensor,
)
from mlcbuild.compiler.models.checkpoints.recurrence_parameters import recurrence_parameters
from mlcbuild.compiler.models.checkpoints.smoothed_inputs import smoothed_inputs_of_recurrences
from mlcbuild.compiler.models.parameter_role import ParameterRole


def recurrent_model_parameters(config: RecurrentModelConfig, layout: CheckpointLayout) -> ParameterList:
    """Every parameter, in the order of the forward pass. A tied model has no head: its embedding serves."""
    names, hidden = config.names, config.hidden_size

    def parameter(name: str, source: TensorName, role: ParameterRole, *shape: int) -> Parameter:
        full = f"{source.hugging_face}.weight"
        gguf = TensorLayout(name=f"{source.gguf}.weight", shape=shape) if source.gguf else None
        others = tuple(TensorLayout(name=other, shape=shape) for other in layout.others(full))
        tensor = CheckpointTensor(name=full, shape=shape, gguf=gguf, others=others)
        return Parameter(name=f"{name}.weight", role=role, shape=shape, sources=(tensor,))

    vocabulary = (config.vocab_size, hidden)
    embedding = parameter(names.embedding, layout.embedding, ParameterRole.EMBEDDING, *vocabulary)
    found = [embedding]
    for number in range(config.num_layers):
        own, checkpoint, gguf = f"{names.layers}.{number}", f"{layout.layers}.{number}", f"blk.{number}"
        norm = layout.attention_norm.below(checkpoint, gguf)
        found.append(parameter(f"{own}.{names.attention_norm}", norm, ParameterRole.VECTOR, hidden))
        found += recurrence_parameters(
            config.recurrence,
            hidden,
            own=f"{own}.{names.recurrence}",
            checkpoint=f"{checkpoint}.{layout.recurrence.hugging_face}",
            gguf=gguf,
        )
    found.append(parameter(names.norm, layout.norm, ParameterRole.VECTOR, hidden))
    head = parameter(names.head, layout.head, ParameterRole.FINAL_FC, *vocabulary)
    smoothed = smoothed_inputs_of_recurrences(config)
    if config.tie_word_embeddings:
        tied = TiedTensor(tensor=head.sources[0], equal_to=embedding.sources[0].name)
        return ParameterList(parameters=tuple(found), tied=(tied,), smoothed=smoothed)
    return ParameterList(parameters=(*found, head), smoothed=smoothed)
