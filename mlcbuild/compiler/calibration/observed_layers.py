"""A language model whose kinds of layers are entry functions, which take a layer's own parameters as arguments: so the
weights of one layer are in memory at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tvm import relax, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.calibration.observation import END, LOGITS, Observation, layer_function
from mlcbuild.compiler.calibration.observed_functions import ObservedFunctions, parameters_below
from mlcbuild.compiler.calibration.observing_reader import ObservingReader
from mlcbuild.compiler.models.caches.kv_cache import create_placeholder
from mlcbuild.compiler.models.caches.recurrent_state import RecurrentState, create_recurrent_state
from mlcbuild.compiler.models.layers.recurrent_layer import RecurrentLayer
from mlcbuild.compiler.models.layers.spans import one_sequence
from mlcbuild.compiler.models.networks.causal_lm import CachedLM, LanguageModel, cache_specification
from mlcbuild.compiler.models.networks.decoder import values_of_positions
from mlcbuild.compiler.models.networks.recurrent_lm import state_specification

if TYPE_CHECKING:
    from mlcbuild.compiler.models.description import Layers
    from mlcbuild.compiler.models.layers.decoder_layer import DecoderLayer

_CACHE, _STATE = "paged_kv_cache", "rnn_state"


def observed_language_model(
    model: LanguageModel, reader: ObservingReader, layers: Layers, shown: Sequence[int]
) -> tuple[object, Observation]:
    """The module of a model that has the layers `shown` of `layers`, and what Observe is told of it.

    Functions of layers take all that sequences of the model keep: a cache, recurrent states, or both, each with room
    for one layer. The states are also their last result.
    """
    config = model.config
    functions = ObservedFunctions(reader, model.hidden_size)
    kept = _add_kept(functions, model)
    for place, (layer, number) in enumerate(zip(model.decoder.layers, shown, strict=True)):
        prefix = f"{layers.name}.{place}."
        parameters = parameters_below(model, prefix, called=f"{layers.name}.{number}.")
        functions.add(layer_function(place), parameters, partial(_through_layer, layer), kept=kept)

    def end(hidden: nn.Tensor, _: Mapping[str, nn.Object]) -> tuple[nn.Tensor, tuple[nn.Object, ...]]:
        normed = model.decoder.norm(hidden)
        reader.observed.append((normed, [model.head_name]))
        return normed, ()

    def logits(hidden: nn.Tensor, _: Mapping[str, nn.Object]) -> tuple[nn.Tensor, tuple[nn.Object, ...]]:
        return model.logits(hidden), ()

    functions.add(END, parameters_below(model, f"{config.names.norm}."), end, kept={})
    functions.add(LOGITS, parameters_below(model, model.head_name.removesuffix("weight")), logits, kept={})
    module = functions.module()
    return module, Observation(
        layers=layers,
        embedding=f"{config.names.embedding}.weight",
        embedding_scale=config.embedding_scale,
        positions=f"{config.names.positions}.weight" if config.learned_positions else "",
        shown=tuple(shown),
        steps=tuple(functions.steps[layer_function(place)] for place in range(len(shown))),
        end=functions.steps[END],
        logits=functions.steps[LOGITS],
    )


def _add_kept(functions: ObservedFunctions, model: LanguageModel) -> Mapping[str, object]:
    """What sequences keep, in the order that functions take it, with the functions that make it."""
    kept: dict[str, object] = {}
    if isinstance(model, CachedLM):
        geometry = replace(model.geometry, num_hidden_layers=1)
        functions.add_creation("create_paged_kv_cache", cache_specification(), partial(create_placeholder, geometry))
        kept[_CACHE] = PagedKVCache
    if vectors := model.vectors:

        def created(sizes: tuple[tirx.Var, ...]) -> RecurrentState:
            sequences, history = sizes
            return create_recurrent_state(vectors, layers=1, most_sequences=sequences, most_history=history)

        functions.add_creation("create_rnn_state", state_specification(), created)
        kept[_STATE] = RecurrentState
    return kept


def _through_layer(
    layer: DecoderLayer | RecurrentLayer, hidden: nn.Tensor, kept: Mapping[str, nn.Object]
) -> tuple[nn.Tensor, tuple[nn.Object, ...]]:
    normed = hidden if layer.first_norm is None else layer.first_norm(hidden)
    state = kept.get(_STATE)
    if isinstance(layer, RecurrentLayer):
        assert state is not None
        made, _, state = layer.forward(hidden, normed, state, relax.prim_value(0), None, one_sequence(hidden))
    else:
        cache, tokens = kept[_CACHE], hidden.shape[0] * hidden.shape[1]
        more = [values_of_positions(cache, each, tokens) for each in layer.of_positions]
        made, _ = layer.forward(hidden, normed, cache, relax.prim_value(0), None, *more)
    return made, (() if state is None else (state,))
