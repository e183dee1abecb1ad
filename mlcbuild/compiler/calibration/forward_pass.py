"""The forward pass of a model that is observed: layer by layer, with one layer's weights in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.compiler.calibration.accumulating import InputSums
from mlcbuild.compiler.calibration.imported_parameters import ImportedParameters
from mlcbuild.compiler.calibration.observation import BEGIN, END, Input, Observation, Step
from mlcbuild.compiler.calibration.samples import Tokens
from mlcbuild.compiler.weights.tensor import Array
from mlcbuild.errors import StageError
from mlcbuild.runtime.kv_cache import CacheSizes
from mlcbuild.runtime.machine import Machine
from mlcbuild.runtime.sequence_states import SequenceStates

_SEQUENCE = 0
_NO_STATE = "none"  # the kind of what encoders keep
Observed = list[tuple[Input, InputSums]]


class ObservedModel:
    """A library of ExportObserved, with the weights that its layers take. Raises UsageError for a library that this
    machine cannot run."""

    def __init__(
        self, library: Path, observation: Observation, weights: ImportedParameters, *, threads: int = 1
    ) -> None:
        self._machine = Machine(library, threads=threads)
        self._observation = observation
        self._weights = weights
        metadata = json.loads(str(self._machine.entry("_metadata")()))
        self._sizes = CacheSizes(
            prefill_chunk=int(metadata["prefill_chunk_size"]),
            sliding_window=int(metadata["sliding_window_size"]),
            attention_sink=int(metadata["attention_sink_size"]),
            context_window=int(metadata["context_window_size"]),
            kind=str(metadata["kv_state_kind"]),
        )

    def observed(self, samples: Sequence[Tokens]) -> Iterator[tuple[Observed, int]]:
        """The inputs of each layer, and of the head at last, with the number of such steps. Raises StageError for
        samples that do not fit the context, and for inputs that are not finite."""
        longest = max(map(len, samples))
        most = self._sizes.context_window if self._keeps else min(self._sizes.context_window, self._sizes.prefill_chunk)
        if self._sizes.is_bounded and longest > most:
            raise StageError(
                f"samples of {longest} tokens do not fit the model's context of {most}",
                advice=("lower `tokens` of the calibration_text",),
            )
        layers, begin, end = self._observation.layers, self._observation.begin, self._observation.end
        steps = layers.count + (end is not None)
        states = None
        if self._keeps:
            states = SequenceStates(self._machine, self._sizes, sequences=1, tokens=self._sizes.held(longest))
        hidden = [self._embedded(sample) for sample in samples]
        if begin is not None:
            self._pass(BEGIN, begin, hidden, None)
        for number in range(layers.count):
            function, step = self._observation.step(number)
            yield self._pass(function, step, hidden, states), steps
        if end is not None:
            yield self._pass(END, end, hidden, None), steps

    @property
    def _keeps(self) -> bool:
        """Whether sequences keep something, so that they can be read piece by piece."""
        return self._sizes.kind != _NO_STATE

    def _embedded(self, sample: Tokens) -> Array:
        """(n, hidden) before the first layer, or before `begin`."""
        observation = self._observation
        hidden = self._weights.rows(observation.embedding, np.asarray(sample))
        hidden *= np.float32(observation.embedding_scale)
        if observation.positions:
            hidden += self._weights.rows(observation.positions, observation.first_position + np.arange(len(sample)))
        if observation.types:
            hidden += self._weights.rows(observation.types, np.zeros(1, np.int64))
        return hidden

    def _pass(self, function: str, step: Step, hidden: list[Array], states: SequenceStates | None) -> Observed:
        """Take the hidden states of all samples through a function, in place."""
        entry = self._machine.entry(function)
        weights = [self._machine.tensor(self._weights.numbers(name)) for name in step.parameters]
        found = [(each, InputSums(self._machine, each.width)) for each in step.inputs]
        for place, before in enumerate(hidden):
            if states is not None:
                states.add(_SEQUENCE)
            behind = []
            length = self._sizes.prefill_chunk if self._keeps else len(before)
            for begin in range(0, len(before), length):
                piece = before[begin : begin + length]
                made = self._run(entry, piece, weights, states)
                behind.append(made[0].numpy()[0])
                for place_of, (each, sums) in enumerate(found, 1):
                    sums.add(_finite(made[place_of].numpy(), each))
            hidden[place] = np.concatenate(behind)
            if states is not None:
                states.remove(_SEQUENCE)
        return found

    def _run(self, entry: Any, piece: Array, weights: list[Any], states: SequenceStates | None) -> Any:
        given = self._machine.tensor(np.ascontiguousarray(piece[np.newaxis]))
        if states is None:
            return entry(given, *weights)

        def run(own: Sequence[Any]) -> Sequence[Any]:
            made = entry(given, *own, *weights)
            kept = (*own[:-1], made[len(made) - 1]) if self._sizes.is_recurrent else own
            return made, *kept

        return states.forward([_SEQUENCE], [len(piece)], run)


def _finite(rows: Array, observed: Input) -> Array:
    if not np.isfinite(rows).all():
        raise StageError(
            f"{observed.matrices[0]} is multiplied by numbers that are not finite",
            advice=("the model's weights may be damaged: see what it says in q0f32",),
        )
    return rows
