"""Copies from a GPU into page-locked host memory, which its driver writes without a copy of its own: several times as
fast as into memory that may be paged out. Locking pages takes milliseconds, so the memory is kept and used again."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

_LEAST = 4096  # elements


class PageLockedCopies:
    """Arrays that are copies of float32 tensors; the memory of an array is used again when nothing refers to it."""

    def __init__(self, tvm: Any, device: Any, *, host: int) -> None:
        """`host` is DLPack's type of device of the memory."""
        self._runtime = tvm.runtime
        self._device = device
        self._host = tvm.runtime.device(host, 0)
        self._free: dict[int, list[Any]] = {}  # by elements

    def numpy(self, tensor: Any) -> npt.NDArray[Any]:
        """A copy, which is complete when this returns, of the tensor's shape."""
        shape = tuple(map(int, tensor.shape))
        count = max(_LEAST, 1 << (math.prod(shape) - 1).bit_length())
        free = self._free.setdefault(count, [])
        memory = free.pop() if free else self._runtime.empty((count,), "float32", self._host)
        tensor.copyto(memory._create_view(shape))
        self._device.sync()
        array: npt.NDArray[Any] = np.from_dlpack(memory)
        weakref.finalize(array, free.append, memory).atexit = False
        return array[: math.prod(shape)].reshape(shape)
