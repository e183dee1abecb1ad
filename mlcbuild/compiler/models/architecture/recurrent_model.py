"""A language model whose layers are recurrences alone, as values: its shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcbuild.compiler.models.architecture.decoder import NormConfig
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.recurrence import Recurrence
from mlcbuild.compiler.models.description import Layers


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentModelConfig:
    """Embedding, `num_layers` equal layers x += recurrence(norm(x)), a last norm, and a head. What a decoder may have
    besides, it has not: see `networks.decoder.LanguageModelConfig`."""

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
    residual_scale: ClassVar[float] = 1.0
    logit_scale: ClassVar[float] = 1.0
    logit_softcap: ClassVar[float] = 0.0

    @property
    def layers(self) -> Layers:
        return Layers(name=self.names.layers, count=self.num_layers)

    def of_layer(self, number: int) -> RecurrentModelConfig:  # noqa: ARG002
        """What the layer of a number is built from: all are equal."""
        return self
