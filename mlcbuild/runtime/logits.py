"""Logits of a pass, on the device that computed them until somebody wants them in host memory."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from mlcbuild.runtime.machine import Machine

Array = npt.NDArray[Any]

_BYTES = 4


class Logits:
    """Rows of logits, float32. Decoding may write the next ones to the same place: read them before the next pass."""

    def __init__(self, machine: Machine, tensor: Any, *, rows: int, first: int = 0) -> None:
        """Of a tensor (…, vocabulary), `rows` rows from `first` on."""
        self._machine = machine
        self._tensor = tensor
        self._vocabulary = int(tensor.shape[-1])
        self._first = first
        self.rows = rows

    def numpy(self) -> Array:
        """(rows, vocabulary)."""
        numbers = self._machine.numpy(self.on_device())
        return numbers.reshape(self.rows, self._vocabulary)

    def on_device(self) -> Any:
        """(rows, 1, vocabulary), as the functions of a library that sample take them."""
        shape = (self.rows, 1, self._vocabulary)
        if not self._first:
            return self._tensor._create_view(shape)
        # A kernel takes what begins where its memory begins.
        begin = self._first * self._vocabulary * _BYTES
        return self._tensor._create_view(shape, relative_byte_offset=begin).copyto(self._machine.device)

    def last(self) -> Logits:
        """The last row alone."""
        return Logits(self._machine, self._tensor, rows=1, first=self._first + self.rows - 1)
