"""Encoders: a compiled library's hidden states, and those of transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.runtime.vm import VirtualMachine

from tests.compiler.running import Array

LENGTHS = (23, 9, 1, 16)


class EncoderLibrary:
    """A loaded library of an encoder with its weights."""

    def __init__(self, path: Path, weights: Mapping[str, Array], *, device: Any = None) -> None:
        self._device = device or tvm.cpu()
        self._machine = VirtualMachine(tvm.runtime.load_module(str(path)), self._device)
        self.metadata = json.loads(str(self._machine["_metadata"]()))
        names = [item["name"] for item in self.metadata["params"]]
        self._weights = [tvm.runtime.tensor(np.ascontiguousarray(weights[name]), self._device) for name in names]

    def hidden(self, tokens: Array, mask: Array) -> Array:
        """Of tokens and a mask (texts, length) int32: (texts, length, hidden)."""
        given = [tvm.runtime.tensor(np.ascontiguousarray(array), self._device) for array in (tokens, mask)]
        found: Array = self._machine["prefill"](*given, self._weights).numpy()
        return found

    def functions(self) -> set[str]:
        """The names of all functions that an engine can call."""
        return {name for name in ("prefill", "embed", "softmax_with_temperature", "decode") if self._has(name)}

    def _has(self, name: str) -> bool:
        try:
            self._machine[name]
        except AttributeError:
            return False
        return True


def texts(vocabulary: int) -> tuple[Array, Array]:
    """Texts of unequal lengths, and their mask; the last one is padded in front. Token 1 is in none of them."""
    random = np.random.default_rng(7)
    tokens = np.ones((len(LENGTHS), max(LENGTHS)), np.int32)
    mask = np.zeros_like(tokens)
    for row, length in enumerate(LENGTHS):
        place = slice(0, length) if row + 1 < len(LENGTHS) else slice(max(LENGTHS) - length, None)
        tokens[row, place] = random.integers(2, vocabulary, length)
        mask[row, place] = 1
    return tokens, mask


def reference_hidden(model: Any, tokens: Array, mask: Array) -> Array:
    """What transformers computes: (texts, length, hidden)."""
    import torch

    with torch.no_grad():
        found: Array = model(
            torch.from_numpy(tokens).long(), attention_mask=torch.from_numpy(mask)
        ).last_hidden_state.numpy()
    return found


def compare_encoder(library: EncoderLibrary, model: Any, *, vocabulary: int, bound: float) -> float:
    """The largest difference of hidden states from those of transformers, relative to the largest: of texts of unequal
    lengths in one batch, of one text, and of one token. Fails above the bound."""
    tokens, mask = texts(vocabulary)
    expected = reference_hidden(model, tokens, mask)
    largest = float(np.abs(expected).max())
    errors = [float(np.abs(library.hidden(tokens, mask) - expected)[mask > 0].max()) / largest]
    for row, length in ((0, LENGTHS[0]), (2, LENGTHS[2])):
        alone = library.hidden(tokens[row : row + 1, :length], mask[row : row + 1, :length])
        errors.append(float(np.abs(alone[0] - expected[row, :length]).max()) / largest)
    assert max(errors) <= bound, errors
    return max(errors)
