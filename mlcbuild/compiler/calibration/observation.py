"""How a model is observed: what ExportObserved says to Observe of the library's entry functions.

Tokens become hidden states by rows of the embedding, a factor, and learned positions, where a model has them. Each kind
of layer is an entry function, `layer_<place>`, that takes hidden states, what sequences of the model keep (a KV cache,
recurrent states, or both, of one layer), and a layer's own parameters, and returns hidden states with the inputs of the
layer's matrices, and the recurrent states. `end` takes hidden states behind the last
layer and the parameters of the last norm, and returns the input of the head, and `logits` takes that and the head's
parameters. Encoders have `begin` instead, for the norm of embeddings, and see a text as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlcbuild.compiler import json_values
from mlcbuild.compiler.models.description import Layers

VERSION = 1
BEGIN, END, LOGITS = "begin", "end", "logits"
GRAM_ROWS = 128  # that are added to a gram at a time


def layer_function(place: int) -> str:
    """The entry function of the kind of layer that is shown at a place."""
    return f"layer_{place}"


def gram_function(width: int) -> str:
    """The entry function that adds rows (GRAM_ROWS, width) to a gram (width, width)."""
    return f"gram_{width}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What matrices, by the names of parameters, are multiplied by: rows of `width` numbers."""

    matrices: tuple[str, ...]
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An entry function: the parameters that it takes, in order, and the inputs that it returns. Names are those of the
    layer that stands for its kind."""

    parameters: tuple[str, ...]
    inputs: tuple[Input, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """`positions` is the parameter with learned positions, of which `first_position` is the first token's, and `types`
    one whose first row is added to all tokens; "" for a model without. `steps` are those of the layers with the numbers
    `shown`, each for all layers of its kind. An encoder has a `begin`, and neither `end` nor `logits`."""

    layers: Layers
    embedding: str
    embedding_scale: float
    positions: str
    shown: tuple[int, ...]
    steps: tuple[Step, ...]
    begin: Step | None = None
    end: Step | None = None
    logits: Step | None = None
    first_position: int = 0
    types: str = ""

    def step(self, number: int) -> tuple[str, Step]:
        """The entry function of the layer of a number, and what it takes and returns by that layer's names."""
        kind = self.layers.kind(number)
        place = next(place for place, shown in enumerate(self.shown) if self.layers.kind(shown) == kind)

        def renamed(name: str) -> str:
            before = f"{self.layers.name}.{self.shown[place]}."
            return f"{self.layers.name}.{number}.{name.removeprefix(before)}" if name.startswith(before) else name

        step = self.steps[place]
        return layer_function(place), Step(
            parameters=tuple(map(renamed, step.parameters)),
            inputs=tuple(Input(matrices=tuple(map(renamed, each.matrices)), width=each.width) for each in step.inputs),
        )


def read_observation(path: Path) -> Observation:
    """Raises StageError for another file."""
    return json_values.read(Observation, path, version=VERSION)


def write_observation(observation: Observation, path: Path) -> None:
    json_values.write(observation, path, version=VERSION)
