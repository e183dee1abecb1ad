"""A language model whose layers are recurrences alone, as values: its shape, and its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcbuild.compiler.models.checkpoint_layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.decoder import NormConfig
from mlcbuild.compiler.models.decoder_names import DecoderNames
from mlcbuild.compiler.models.description import Layers
from mlcbuild.compiler.models.parameters import (
    CheckpointTensor,
    Parameter,
    ParameterList,
    ParameterRole,
    TensorLayout,
    TiedTensor,
)
from mlcbuild.compiler.models.recurrence import Recurrence
from mlcbuild.compiler.models.recurrence_parameters import recurrence_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentModelConfig:
    """Embedding, `num_layers` equal layers x += recurrence(norm(x)), a last norm, and a head. What a decoder may have
    besides, it has not: see `causal_lm.LanguageModelConfig`."""

    hidden_size: int
    vocab_size: int
    num_layers: int
    norm: NormConfig
    recurrence: Recurrence
    tie_word_embeddings: bool
    names: DecoderNames
    feed_forward: ClassVar[None] = None
    learned_positions: ClassVar[int] = 0
    head_bias: ClassVar[bool] = False
    head_apart: ClassVar[bool] = False
    embedding_scale: ClassVar[float] = 1.0
    logit_scale: ClassVar[float] = 1.0
    logit_softcap: ClassVar[float] = 0.0

    @property
    def layers(self) -> Layers:
        return Layers(name=self.names.layers, count=self.num_layers)

    def of_layer(self, number: int) -> RecurrentModelConfig:  # noqa: ARG002
        """What the layer of a number is built from: all are equal."""
        return self


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
    if config.tie_word_embeddings:
        tied = TiedTensor(tensor=head.sources[0], equal_to=embedding.sources[0].name)
        return ParameterList(parameters=tuple(found), tied=(tied,))
    return ParameterList(parameters=(*found, head))
