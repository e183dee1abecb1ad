"""An encoder whose kinds of layers are entry functions, as those of language models are (`observed_layers`). Texts are
observed one by one, so that none is padded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tvm.relax.frontend import nn

from mlcbuild.compiler.calibration.observation import BEGIN, Observation, layer_function
from mlcbuild.compiler.calibration.observed_functions import ObservedFunctions, parameters_below
from mlcbuild.compiler.calibration.observing_reader import ObservingReader
from mlcbuild.compiler.models.networks.encoder_model import EMBEDDINGS_NORM, Encoder, EncoderLayer, table_name

if TYPE_CHECKING:
    from mlcbuild.compiler.models.description import Layers

_Kept = Mapping[str, nn.Object]


def observed_encoder(
    model: Encoder, reader: ObservingReader, layers: Layers, shown: Sequence[int]
) -> tuple[object, Observation]:
    """The module of an encoder that has the layers `shown` of `layers`, and what Observe is told of it."""
    functions = ObservedFunctions(reader, model.config.hidden_size)

    def begin(hidden: nn.Tensor, _: _Kept) -> tuple[nn.Tensor, tuple[nn.Object, ...]]:
        return model.embeddings_norm(hidden), ()

    functions.add(BEGIN, parameters_below(model, f"{EMBEDDINGS_NORM}."), begin, kept={})
    for place, (layer, number) in enumerate(zip(model.layers, shown, strict=True)):
        prefix = f"{layers.name}.{place}."
        parameters = parameters_below(model, prefix, called=f"{layers.name}.{number}.")
        functions.add(layer_function(place), parameters, partial(_through_layer, layer), kept={})
    module = functions.module()
    padding = model.config.padding_token
    return module, Observation(
        layers=layers,
        embedding=f"{table_name('word')}.weight",
        embedding_scale=1.0,
        positions=f"{table_name('position')}.weight",
        first_position=0 if padding is None else padding + 1,
        types=f"{table_name('token_type')}.weight",
        shown=tuple(shown),
        begin=functions.steps[BEGIN],
        steps=tuple(functions.steps[layer_function(place)] for place in range(len(shown))),
    )


def _through_layer(layer: EncoderLayer, hidden: nn.Tensor, _: _Kept) -> tuple[nn.Tensor, tuple[nn.Object, ...]]:
    mask = nn.op.ones((1, hidden.shape[1]), dtype="int32")
    return layer.forward(hidden, mask), ()
