"""A decoder without a head: embedding, layers and the last norm, and what sequences keep from pass to pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tvm import relax, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.models.architecture.decoder import NormConfig
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.rotary_tables import RotaryTable
from mlcbuild.compiler.models.caches.recurrent_state import RecurrentState
from mlcbuild.compiler.models.description import Layers
from mlcbuild.compiler.models.layers.attention import OfPositions
from mlcbuild.compiler.models.layers.decoder_layer import DecoderLayer
from mlcbuild.compiler.models.layers.known_sizes import is_one
from mlcbuild.compiler.models.layers.norm import make_norm
from mlcbuild.compiler.models.layers.placing import place
from mlcbuild.compiler.models.layers.recurrent_layer import RecurrentLayer
from mlcbuild.compiler.models.layers.rotation import turns
from mlcbuild.compiler.models.layers.spans import Spans
from mlcbuild.compiler.models.layers.temperature import temperatures
from mlcbuild.compiler.models.networks.outlining import Outliner
from mlcbuild.compiler.quantization.layers import Embedding
from mlcbuild.compiler.quantization.reader import Reader

MakeLayer = Callable[..., DecoderLayer | RecurrentLayer]


class LanguageModelConfig(Protocol):
    """What a language model is built from besides its layers, each as `architecture.decoder.DecoderConfig` has it."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def norm(self) -> NormConfig: ...
    @property
    def tie_word_embeddings(self) -> bool: ...
    @property
    def names(self) -> DecoderNames: ...
    @property
    def learned_positions(self) -> int: ...
    @property
    def head_bias(self) -> bool: ...
    @property
    def head_apart(self) -> bool: ...
    @property
    def embedding_scale(self) -> float: ...
    @property
    def logit_scale(self) -> float: ...
    @property
    def logit_softcap(self) -> float: ...
    @property
    def layers(self) -> Layers: ...
    def of_layer(self, number: int) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class SequenceState:
    """The state of a batch's sequences in a forward pass: KV cache, recurrent states, or both. With recurrent states,
    `spans` are the places of each sequence's tokens."""

    cache: PagedKVCache | None = None
    recurrent: RecurrentState | None = None
    spans: Spans | None = None


class Decoder:
    """Embedding table, layers and the last norm, placed below `root` by their names."""

    def __init__(
        self,
        config: LanguageModelConfig,
        reader: Reader,
        *,
        root: nn.Module,
        layers: Sequence[int],
        make_layer: MakeLayer,
    ) -> None:
        names = config.names
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.hidden_size, reader=reader, name=names.embedding)
        self.layers = [
            make_layer(config.of_layer(number), reader, name=f"{names.layers}.{number}") for number in layers
        ]
        self.kinds = [config.layers.kind(number) + reader.layer_kind(f"{names.layers}.{number}") for number in layers]
        is_recurrent = [isinstance(layer, RecurrentLayer) for layer in self.layers]
        self.places = [is_recurrent[:place].count(each) for place, each in enumerate(is_recurrent)]
        self.norm = make_norm(config.norm, config.hidden_size, dtype=reader.scheme.model_dtype)
        self.outliner = Outliner("decoder_layer")
        place(root, names.embedding, self.embedding)
        self.positions: Embedding | None = None
        if config.learned_positions:
            self.positions = Embedding(
                config.learned_positions, config.hidden_size, reader=reader, name=names.positions
            )
            place(root, names.positions, self.positions)
        place(root, names.layers, nn.ModuleList(self.layers))
        place(root, names.norm, self.norm)

    def __call__(self, hidden: nn.Tensor, kept: SequenceState) -> tuple[nn.Tensor, SequenceState]:
        """(batch, n, hidden) → the same, behind the last norm, and what sequences keep behind it."""
        cache = kept.cache
        if self.config.embedding_scale != 1.0:
            hidden = hidden * self.config.embedding_scale
        if self.positions is not None and cache is not None:
            batch, length, width = hidden.shape
            places = cache.get_query_positions(batch * length)
            hidden = hidden + nn.op.reshape(self.positions(places), (batch, length, width))
        wanted = dict.fromkeys(each for layer in self.layers for each in layer.of_positions)
        tokens = hidden.shape[0] * hidden.shape[1]
        made = {each: values_of_positions(cache, each, tokens)._expr for each in wanted if cache is not None}
        first = [layer.first_norm for layer in self.layers]
        norms = [*first[1:], self.norm if first[0] is not None else None]
        normed = hidden if first[0] is None else first[0](hidden)
        for number, layer in enumerate(self.layers):
            more = [made[each] for each in layer.of_positions]
            # A function without parameters that it does not use: TVM would take them from it.
            own = replace(kept, cache=None) if isinstance(layer, RecurrentLayer) else replace(kept, spans=None)
            given = [hidden._expr, normed._expr, *_expressions(own), relax.prim_value(self.places[number]), *more]
            results = self._layer(layer, given, norms[number], own, kind=self.kinds[number])
            hidden, normed = (nn.Tensor(_expr=result) for result in results[:2])
            if kept.recurrent is not None:
                kept = replace(kept, recurrent=RecurrentState(_expr=results[2], _name="rnn_state"))
        return self.norm(hidden) if first[0] is None else normed, kept

    def _layer(
        self,
        layer: DecoderLayer | RecurrentLayer,
        given: list[relax.Expr],
        next_norm: nn.Module | None,
        kept: SequenceState,
        *,
        kind: str,
    ) -> tuple[relax.Var, ...]:
        def trace(hidden: relax.Var, normed: relax.Var, *variables: relax.Var) -> tuple[nn.Tensor | nn.Object, ...]:
            tensors = (nn.Tensor(_expr=hidden), nn.Tensor(_expr=normed))
            own, (number, *more) = _inside(kept, variables)
            if isinstance(layer, RecurrentLayer):
                assert own.recurrent is not None
                assert own.spans is not None
                return layer.forward(*tensors, own.recurrent, number, next_norm, own.spans)
            made = layer.forward(*tensors, own.cache, number, next_norm, *(nn.Tensor(_expr=each) for each in more))
            return made if own.recurrent is None else (*made, own.recurrent)

        parts = layer.parts(next_norm, single=is_one(given[0].ty.shape[1]))
        return self.outliner.call(parts, trace, given, kind=kind)


def values_of_positions(cache: PagedKVCache, wanted: OfPositions, tokens: tirx.Expr) -> nn.Tensor:
    """What follows of the positions of a pass's tokens."""
    if isinstance(wanted, RotaryTable):
        return turns(cache, wanted, tokens)
    return temperatures(cache, wanted, tokens)


def _expressions(kept: SequenceState) -> list[relax.Expr]:
    """The arguments of a layer's call behind the hidden states. The recurrent state comes first, as a layer returns it
    second."""
    spans = [] if kept.spans is None else [kept.spans.begins, kept.spans.ends, kept.spans.owners]
    return [each._expr for each in (kept.recurrent, kept.cache, *spans) if each is not None]


def _inside(kept: SequenceState, variables: Sequence[relax.Var]) -> tuple[SequenceState, Sequence[relax.Var]]:
    """The same of a layer's own variables, and the variables that are left."""
    left = list(variables)
    recurrent = None if kept.recurrent is None else RecurrentState(_expr=left.pop(0), _name="rnn_state")
    cache = None if kept.cache is None else PagedKVCache(_expr=left.pop(0), _name="paged_kv_cache")
    spans = None
    if kept.spans is not None:
        begins, ends, owners = (nn.Tensor(_expr=left.pop(0)) for _ in range(3))
        spans = Spans(begins=begins, ends=ends, owners=owners)
    return SequenceState(cache=cache, recurrent=recurrent, spans=spans), left
