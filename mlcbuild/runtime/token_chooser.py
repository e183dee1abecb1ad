"""Chooses the next tokens of a pass: on the device, by the library's own functions, where it has them.

Libraries for GPUs have them, as serving engines sample there. Then tokens come to the host, and no logits: those of 64
sequences are tens of megabytes. The number that a `Sampler` draws counts from the first token of the vocabulary there,
and from the likeliest here, so that a seed chooses other tokens on another kind of device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlcbuild.errors import UsageError
from mlcbuild.runtime.logits import Logits
from mlcbuild.runtime.machine import Machine
from mlcbuild.runtime.sampling import Sampler

_SOFTMAX = "softmax_with_temperature"
_TOP_P = "renormalize_by_top_p"
_SAMPLE = "multinomial_from_uniform"
_PIVOTS = (1.0, 0.5, 0.25)  # first thresholds of the search for top_p, as shares of what is left out


class ChosenTokens:
    """A token for each row of logits. `on_device` has them as the library's device is going to have them, (rows,)
    int32, where it chooses them itself; `numbers` waits until it has."""

    def __init__(self, tokens: Sequence[int] | None = None, *, on_device: Any = None) -> None:
        self._tokens = None if tokens is None else list(tokens)
        self.on_device = on_device

    def numbers(self) -> list[int]:
        if self._tokens is None:
            self._tokens = [int(token) for token in self.on_device.numpy()]
        return self._tokens


class TokenChooser:
    """For one library, loaded in `machine`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._rows: dict[int, Any] = {}
        self._zeros: dict[int, Any] = {}
        try:
            self._functions = {name: machine.entry(name) for name in (_SOFTMAX, _TOP_P, _SAMPLE)}
        except UsageError:
            self._functions = {}

    @property
    def is_on_device(self) -> bool:
        return bool(self._functions)

    def choose(self, logits: Logits, samplers: Sequence[Sampler | None]) -> list[int]:
        """A token for each row, by the row's sampler; any token for a row without one."""
        return self.begin_to_choose(logits, samplers).numbers()

    def begin_to_choose(self, logits: Logits, samplers: Sequence[Sampler | None]) -> ChosenTokens:
        """`choose`, without waiting for a device."""
        if self.is_on_device:
            return ChosenTokens(on_device=self._on_device(logits, samplers))
        pairs = zip(logits.numpy(), samplers, strict=True)
        return ChosenTokens([0 if sampler is None else sampler.choose(row) for row, sampler in pairs])

    def _on_device(self, logits: Logits, samplers: Sequence[Sampler | None]) -> Any:
        given = logits.on_device()
        count, _, vocabulary = given.shape
        random = [sampler if sampler is not None and sampler.sampling.temperature else None for sampler in samplers]
        if any(random):
            temperatures = self._tensor([each.sampling.temperature if each else 0.0 for each in random])
            numbers = self._tensor([each.number() if each else 0.0 for each in random])
        else:
            temperatures = numbers = self._kept(self._zeros, np.zeros(count, np.float32))
        probabilities = self._functions[_SOFTMAX](given, temperatures)._create_view((count, vocabulary))
        top_p = [each.sampling.top_p if each else 1.0 for each in random]
        if min(top_p) < 1:
            left_out = 1 - np.array(top_p, np.float32)
            pivots = self._machine.tensor(np.outer(left_out, np.array(_PIVOTS, np.float32)))
            probabilities = self._functions[_TOP_P](probabilities, self._tensor(top_p), pivots)
        rows = self._kept(self._rows, np.arange(count, dtype=np.int32))
        return self._functions[_SAMPLE](probabilities, numbers, rows)

    def _tensor(self, numbers: Sequence[float]) -> Any:
        return self._machine.tensor(np.array(numbers, np.float32))

    def _kept(self, kept: dict[int, Any], array: np.ndarray[Any, Any]) -> Any:
        """The same tensor for each array of one length."""
        if len(array) not in kept:
            kept[len(array)] = self._machine.tensor(array)
        return kept[len(array)]
