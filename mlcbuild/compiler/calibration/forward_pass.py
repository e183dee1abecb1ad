"""The forward pass of a model that is observed: layer by layer, with one layer's weights in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
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

    @property
    def observation(self) -> Observation:
        return self._observation

    @property
    def weights(self) -> ImportedParameters:
        return self._weights

    def observed(self, samples: Sequence[Tokens]) -> Iterator[tuple[Observed, int]]:
        """The inputs of each layer, and of the head at last, with the number of such steps. Raises StageError for
        samples that do not fit the context, and for inputs that are not finite."""
        layers, begin, end = self._observation.layers, self._observation.begin, self._observation.end
        steps = layers.count + (end is not None)
        states = self.states_for(samples)
        hidden = [self.embedded(sample) for sample in samples]
        if begin is not None:
            self._pass(BEGIN, begin, hidden, None)
        for number in range(layers.count):
            function, step = self._observation.step(number)
            yield self._pass(function, step, hidden, states), steps
        if end is not None:
            yield self._pass(END, end, hidden, None), steps

    def states_for(self, samples: Sequence[Tokens]) -> SequenceStates | None:
        """What one sequence keeps, with room for each of the samples; None for a model that keeps nothing. Raises
        StageError for samples that do not fit the context."""
        longest = max(map(len, samples))
        most = self._sizes.context_window if self._keeps else min(self._sizes.context_window, self._sizes.prefill_chunk)
        if self._sizes.is_bounded and longest > most:
            raise StageError(
                f"samples of {longest} tokens do not fit the model's context of {most}",
                advice=("lower `tokens` of the calibration_text",),
            )
        if not self._keeps:
            return None
        return SequenceStates(self._machine, self._sizes, sequences=1, tokens=self._sizes.held(longest))

    def tensors(self, step: Step, changed: Mapping[str, Array] = {}) -> list[Any]:
        """The parameters of a step, as its function takes them; some may be `changed`."""
        numbers = (changed[name] if name in changed else self._weights.numbers(name) for name in step.parameters)
        return [self._machine.tensor(np.ascontiguousarray(each)) for each in numbers]

    def through(
        self, function: str, weights: list[Any], hidden: Sequence[Array], states: SequenceStates | None
    ) -> Iterator[Array]:
        """What a function makes of the hidden states of each sample, with the `tensors` of its step."""
        entry = self._machine.entry(function)
        for before in hidden:
            yield np.concatenate([made[0].numpy()[0] for made in self._pieces(entry, weights, before, states)])

    @property
    def _keeps(self) -> bool:
        """Whether sequences keep something, so that they can be read piece by piece."""
        return self._sizes.kind != _NO_STATE

    def embedded(self, sample: Tokens, changed: Mapping[str, Array] = {}) -> Array:
        """(n, hidden) before the first layer, or before `begin`; some tables may be `changed`."""
        observation = self._observation

        def rows(name: str, wanted: Array) -> Array:
            return changed[name][wanted] if name in changed else self._weights.rows(name, wanted)

        hidden = rows(observation.embedding, np.asarray(sample)) * np.float32(observation.embedding_scale)
        if observation.positions:
            hidden += rows(observation.positions, observation.first_position + np.arange(len(sample)))
        if observation.types:
            hidden += rows(observation.types, np.zeros(1, np.int64))
        return hidden

    def _pass(self, function: str, step: Step, hidden: list[Array], states: SequenceStates | None) -> Observed:
        """Take the hidden states of all samples through a function, in place."""
        entry, weights = self._machine.entry(function), self.tensors(step)
        found = [(each, InputSums(self._machine, each.width)) for each in step.inputs]
        for place, before in enumerate(hidden):
            behind = []
            for made in self._pieces(entry, weights, before, states):
                behind.append(made[0].numpy()[0])
                for place_of, (each, sums) in enumerate(found, 1):
                    sums.add(_finite(made[place_of].numpy(), each))
            hidden[place] = np.concatenate(behind)
        return found

    def _pieces(self, entry: Any, weights: list[Any], before: Array, states: SequenceStates | None) -> Iterator[Any]:
        """What a function returns for each piece of a sample's hidden states."""
        if states is not None:
            states.add(_SEQUENCE)
        length = self._sizes.prefill_chunk if self._keeps else len(before)
        for begin in range(0, len(before), length):
            yield self._run(entry, before[begin : begin + length], weights, states)
        if states is not None:
            states.remove(_SEQUENCE)

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
